"""`format: dingtalk`: a custom robot of DingTalk. `secret` is that of its signature check (SEC...), where that is on.

Source: the open platform's page on custom robots. `timestamp` (milliseconds) and `sign` stand in the query; the sign is
base64 of HMAC-SHA256 over `timestamp LF secret`, with the secret as the key. Every answer is 200: `errcode` other than
0 is a failure, 130101 too many messages (20 a minute).
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

import orjson

from schedulers.webhooks.format import LOUD_ACTIONS, AnswerFailure, MessageFormat, any_secret, lines, title
from schedulers.webhooks.post import WebhookMessage
from store.hints.outbox import Delivery

_TOO_MANY = (130101, 410100)
# Markdown that would make a link, a picture or a mention of what a log wrote.
_PLAIN = str.maketrans(
    {
        "[": "［",
        "]": "］",
        "<": "＜",
        ">": "＞",
        "*": "∗",
        "`": "'",
        "#": "＃",
        "@": "＠",
        "_": "＿",
        "!": "！",
        "~": "～",
        "|": "｜",
    }
)


def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> WebhookMessage:
    """A markdown message."""
    data = delivery.payload["data"]
    said = "\n".join(f"- **{name}**: {text.translate(_PLAIN)}" for name, text in lines(data))
    text = f"#### {title(data).translate(_PLAIN)}\n\n{said}"
    body = orjson.dumps({"msgtype": "markdown", "markdown": {"title": title(data).translate(_PLAIN), "text": text}})
    if not secrets:
        return WebhookMessage(body)
    timestamp_ms = int(now.timestamp() * 1000)
    return WebhookMessage(body, query={"timestamp": str(timestamp_ms), "sign": sign(secrets[-1], timestamp_ms)})


def sign(secret: str, timestamp_ms: int) -> str:
    """The sign of a moment, before it is escaped for the URL."""
    signed = f"{timestamp_ms}\n{secret}".encode()
    return base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()


def failure(body: bytes) -> AnswerFailure | None:
    """An `errcode` that is not 0, or none at all."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return AnswerFailure("DingTalk: an answer that is no JSON")
    code = said.get("errcode") if isinstance(said, dict) else None
    if code == 0:
        return None
    text = said.get("errmsg") if isinstance(said, dict) else None
    return AnswerFailure(f"DingTalk: {code}: {text}"[:300], slow=code in _TOO_MANY)


DINGTALK = MessageFormat(write, failure, any_secret, needs_secret=False, is_notice=True, actions=LOUD_ACTIONS)

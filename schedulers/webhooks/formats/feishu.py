"""`format: feishu`: a custom bot of Feishu or Lark. `secret` is that of its signature check, where that is on.

Source: the open platform's page on custom bots. `timestamp` (seconds) and `sign` stand in the body; the sign is base64
of HMAC-SHA256 over nothing, with `timestamp LF secret` as the key. Every answer is 200: `code` other than 0 is a
failure, 11232 too many messages (100 a minute, 5 a second).
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from schedulers.webhooks.format import LOUD_ACTIONS, AnswerFailure, MessageFormat, any_secret, lines, title
from schedulers.webhooks.post import WebhookMessage
from store.hints.outbox import Delivery

_TOO_MANY = 11232


def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> WebhookMessage:
    """A post: its text elements are plain, no text of a log becomes a mention."""
    data = delivery.payload["data"]
    content = [[{"tag": "text", "text": f"{name}: {text}"}] for name, text in lines(data)]
    body: dict[str, Any] = {
        "msg_type": "post",
        "content": {"post": {"en_us": {"title": title(data), "content": content}}},
    }
    if secrets:
        timestamp_s = int(now.timestamp())
        body |= {"timestamp": str(timestamp_s), "sign": sign(secrets[-1], timestamp_s)}
    return WebhookMessage(orjson.dumps(body))


def sign(secret: str, timestamp_s: int) -> str:
    """The sign of a moment."""
    return base64.b64encode(hmac.new(f"{timestamp_s}\n{secret}".encode(), b"", hashlib.sha256).digest()).decode()


def failure(body: bytes) -> AnswerFailure | None:
    """A `code` (older bots: `StatusCode`) that is not 0, or none at all."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return AnswerFailure("Feishu: an answer that is no JSON")
    said = said if isinstance(said, dict) else {}
    code = said.get("code", said.get("StatusCode"))
    if code == 0:
        return None
    return AnswerFailure(f"Feishu: {code}: {said.get('msg', said.get('StatusMessage'))}"[:300], slow=code == _TOO_MANY)


FEISHU = MessageFormat(write, failure, any_secret, needs_secret=False, is_notice=True, actions=LOUD_ACTIONS)

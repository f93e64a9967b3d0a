"""`format: slack`: an incoming webhook. Its URL is its secret; nothing is signed.

Source: Slack's pages on incoming webhooks: the answer is 200 with the body `ok`; an error is 4xx with one word
(`invalid_payload`, `channel_not_found`), 410 `channel_is_archived`, 429 with Retry-After. `& < >` are written as
entities.
"""

from collections.abc import Sequence
from datetime import datetime

import orjson

from schedulers.webhooks.format import LOUD_ACTIONS, AnswerFailure, MessageFormat, any_secret, lines, title
from schedulers.webhooks.post import WebhookMessage
from store.hints.outbox import Delivery

_MOST_HEADER = 150  # characters of a header block
_MOST_TEXT = 3000  # of a section
_MARKS = str.maketrans({"`": "'", "*": "∗", "_": "＿", "~": "∼"})


def write(delivery: Delivery, _secrets: Sequence[str], _now: datetime) -> WebhookMessage:
    """A header and a section; `text` is what a notification shows."""
    data = delivery.payload["data"]
    said = "\n".join(f"*{name}*: {_plain(text)}" for name, text in lines(data))
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": title(data)[:_MOST_HEADER], "emoji": False}},
        {"type": "section", "text": {"type": "mrkdwn", "text": said[:_MOST_TEXT], "verbatim": True}},
    ]
    return WebhookMessage(orjson.dumps({"text": _plain(title(data)), "blocks": blocks}))


def _plain(text: str) -> str:
    """Text that is no link, mention or channel: logs write into it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").translate(_MARKS)


def failure(body: bytes) -> AnswerFailure | None:
    """Anything but `ok` is one."""
    said = body.decode("utf-8", "replace").strip()
    return None if said == "ok" else AnswerFailure(f"Slack: {said[:200] or 'an empty answer'}")


SLACK = MessageFormat(write, failure, any_secret, needs_secret=False, is_notice=True, actions=LOUD_ACTIONS)

"""`format: slack`: an incoming webhook. Its URL is its secret; nothing is signed.

Source: Slack's pages on incoming webhooks: the answer is 200 with the body `ok`; an error is 4xx with one word
(`invalid_payload`, `channel_not_found`), 410 `channel_is_archived`, 429 with Retry-After. `& < >` are written as
entities.
"""

from collections.abc import Sequence
from datetime import datetime

import orjson

from schedulers.webhooks.format import LOUD_ACTIONS, Failure, Format, any_secret
from schedulers.webhooks.post import Message
from schedulers.webhooks.wording import lines, title
from store.outbox import Delivery

_MOST_HEADER = 150  # characters of a header block
_MOST_TEXT = 3000  # of a section


def write(delivery: Delivery, _secrets: Sequence[str], _now: datetime) -> Message:
    """A header and a section; `text` is what a notification shows."""
    data = delivery.payload["data"]
    said = "\n".join(f"*{name}*: {_plain(text)}" for name, text in lines(data))
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": title(data)[:_MOST_HEADER], "emoji": False}},
        {"type": "section", "text": {"type": "mrkdwn", "text": said[:_MOST_TEXT], "verbatim": True}},
    ]
    return Message(orjson.dumps({"text": _plain(title(data)), "blocks": blocks}))


def _plain(text: str) -> str:
    """Text that is no link, mention or channel: logs write into it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'").replace("*", "∗")


def failure(body: bytes) -> Failure | None:
    """Anything but `ok` is one."""
    said = body.decode("utf-8", "replace").strip()
    return None if said == "ok" else Failure(f"Slack: {said[:200] or 'an empty answer'}")


SLACK = Format(write, failure, any_secret, needs_secret=False, is_notice=True, actions=LOUD_ACTIONS)

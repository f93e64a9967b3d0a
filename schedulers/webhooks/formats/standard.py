"""`format: standard`: the document itself, signed as Standard Webhooks 1.0.0 lays down."""

from collections.abc import Sequence
from datetime import datetime

import orjson

from schedulers.webhooks.format import Format, no_failure
from schedulers.webhooks.post import Message
from schedulers.webhooks.signature import key_of, signed_headers
from store.outbox import Delivery


def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> Message:
    """The payload as JSON; the receiver drops repeats of a webhook-id."""
    body = orjson.dumps(delivery.payload)
    return Message(body, headers=signed_headers(secrets, delivery.id, int(now.timestamp()), body))


STANDARD = Format(write, no_failure, key_of)

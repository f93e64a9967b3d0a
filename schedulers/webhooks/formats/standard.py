"""`format: standard`: the document itself, signed as Standard Webhooks 1.0.0 lays down."""

from collections.abc import Sequence
from datetime import datetime

import orjson

from schedulers.webhooks.format import MessageFormat, no_failure
from schedulers.webhooks.post import WebhookMessage
from schedulers.webhooks.signature import key_of, signed_headers
from store.hints.outbox import Delivery
from store.visible_text import visible_json


def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> WebhookMessage:
    """The payload as JSON; the receiver drops repeats of a webhook-id."""
    body = visible_json(orjson.dumps(delivery.payload))
    return WebhookMessage(body, headers=signed_headers(secrets, delivery.id, int(now.timestamp()), body))


STANDARD = MessageFormat(write, no_failure, key_of)

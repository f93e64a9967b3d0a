"""`format: cloudevents`: CloudEvents 1.0 in structured mode (application/cloudevents+json), signed as `standard`.

Source: CloudEvents 1.0.2, the specification and its JSON format: `specversion id source type` must be there;
`subject time dataschema datacontenttype data` may. `id` is the webhook-id: the same over all attempts.
"""

from collections.abc import Sequence
from datetime import datetime

import orjson

from schedulers.webhooks.format import MessageFormat, no_failure
from schedulers.webhooks.post import WebhookMessage
from schedulers.webhooks.signature import key_of, signed_headers
from store.hints.outbox import Delivery
from store.visible_text import visible_json

SOURCE = "/foreshock/hints"
SCHEMA = "urn:foreshock:hint:1"  # an absolute URI, as the specification asks


def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> WebhookMessage:
    """The hint is the event's data, its node the subject."""
    document = delivery.payload
    event = {
        "specversion": "1.0",
        "id": delivery.id,
        "source": SOURCE,
        "type": document["type"],
        "subject": document["data"]["node"],
        "time": document["timestamp"],
        "dataschema": SCHEMA,
        "datacontenttype": "application/json",
        "data": document["data"],
    }
    body = visible_json(orjson.dumps(event))
    headers = signed_headers(secrets, delivery.id, int(now.timestamp()), body)
    return WebhookMessage(body, "application/cloudevents+json; charset=utf-8", headers)


CLOUDEVENTS = MessageFormat(write, no_failure, key_of)

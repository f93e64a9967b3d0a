"""`format: pagerduty`: Events API v2. `secret` is the integration's routing key; the hint's id is the `dedup_key`.

    url: https://events.pagerduty.com/v2/enqueue

A hint triggers an alert and its release resolves it, so that one hint is one alert however often it is raised or sent.
Source: PagerDuty's schema of the Events API v2: severity is critical, error, warning or info; summary has at most 1024
characters; an accepted event is answered 202 with `"status": "success"`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from schedulers.webhooks.format import LOUD_ACTIONS, AnswerFailure, MessageFormat, chat_text, lines, title
from schedulers.webhooks.post import WebhookMessage
from schedulers.webhooks.signature import SecretError
from store.hints.outbox import Delivery
from store.visible_text import visible_json

SEVERITIES = {"drain": "critical", "cordon": "error", "swap": "error", "requeue": "error", "avoid": "warning"}
_ROUTING_KEY_CHARACTERS = 32
_MOST_SUMMARY = 1024
_TRIGGER = {"event_action": "trigger", "client": "Foreshock"}


def write(delivery: Delivery, secrets: Sequence[str], _now: datetime) -> WebhookMessage:
    """A trigger, or the resolve of one; the newest routing key counts."""
    data = delivery.payload["data"]
    event: dict[str, Any] = {"routing_key": secrets[-1], "dedup_key": data["id"]}
    if data["action"] == "release":
        return WebhookMessage(orjson.dumps(event | {"event_action": "resolve"}))
    reason = chat_text(data.get("reason", ""))
    asked = {
        "summary": f"{title(data)}: {reason}"[:_MOST_SUMMARY],
        "source": chat_text(data["node"]),
        "severity": SEVERITIES.get(data.get("asks", data["action"]), "info"),
        "timestamp": delivery.payload["timestamp"],
        "component": "node",
        "class": data["action"],
        "custom_details": dict(lines(data)),
    }
    return WebhookMessage(visible_json(orjson.dumps(event | _TRIGGER | {"payload": asked})))


def failure(body: bytes) -> AnswerFailure | None:
    """An accepted event says so; an answer without a verdict is taken as accepted."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    status = said.get("status") if isinstance(said, dict) else None
    return None if status in (None, "success") else AnswerFailure(f"PagerDuty: {status}: {said.get('message')}"[:300])


def check_routing_key(secret: str) -> None:
    """Refuse what is no routing key.

    Raises:
        SecretError: it has not 32 characters.
    """
    if len(secret) != _ROUTING_KEY_CHARACTERS or not secret.isascii() or not secret.isalnum():
        raise SecretError("the secret of format pagerduty is the integration's routing key: 32 letters and digits")


PAGERDUTY = MessageFormat(write, failure, check_routing_key, is_notice=True, actions=LOUD_ACTIONS)

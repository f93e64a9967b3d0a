"""What is sent about a hint: its document, and the id that all attempts at one delivery share."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

import orjson

from schedulers.settings import Mode
from store.event import format_time
from store.hint import Hint
from store.outbox import Delivery

MAX_PAYLOAD_BYTES = 20_000
# Not an action: a word to those who asked for it that a hint waits for a person (`states: [proposed]`).
PROPOSED = "proposed"
RELEASE = "release"


def delivery_of(hint: Hint, action: str, scheduler: str, mode: Mode, now: datetime) -> Delivery:
    """The delivery of a hint; its id is the same however often it is made."""
    return Delivery(
        ident_of(hint, action, scheduler), hint.id, scheduler, payload(hint, action, mode, now), attempts=0, due=now
    )


def ident_of(hint: Hint, action: str, scheduler: str) -> str:
    """The webhook-id: another one once the hint is raised or renewed."""
    return f"{hint.id}.{action}.{int(hint.valid_until.timestamp())}.{scheduler}"


def payload(hint: Hint, action: str, mode: Mode, now: datetime) -> dict[str, Any]:
    """The document that is sent: under 20 kB, without the evidence where that is too long.

    Of a proposal `action` is `proposed`, and `asks` what it would be: nobody can take it for an order.
    """
    data = asdict(hint) | {
        "action": action,
        "mode": mode,
        "created": format_time(hint.created),
        "valid_until": format_time(hint.valid_until),
    }
    if action == PROPOSED:
        data["asks"] = hint.action
    document = {"type": f"foreshock.hint.{action}", "timestamp": format_time(now), "data": data}
    if len(orjson.dumps(document)) > MAX_PAYLOAD_BYTES:
        data["evidence"] = {"left_out": "too long: GET /api/v1/hints has it"}
    return document


def action_of(delivery: Delivery) -> str:
    """What a delivery asks: an action, `release`, or `proposed`."""
    return str(delivery.payload["data"]["action"])

"""The document that is sent about a hint, its id, and the protocol of a receiver that cannot be read back.

delivery_of(hint, "cordon", "ops", "act", now)     # Delivery; the same id however often it is made
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

import orjson

from schedulers.policy.settings import Mode
from store.hints.outbox import Delivery
from store.records.event import format_time
from store.records.hint import LIVE_STATES, Hint

MAX_PAYLOAD_BYTES = 20_000
# Not an action: a word to those who asked for it that a hint waits for a person (`states: [proposed]`).
PROPOSED = "proposed"
RELEASE = "release"
# Neither: a node that is held for us needs hands; once for each case (`states: [repair]`).
TICKET, REPAIR = "ticket", "repair"


def delivery_of(hint: Hint, action: str, scheduler: str, mode: Mode, now: datetime) -> Delivery:
    """The delivery of a hint; its id is the same however often it is made."""
    return Delivery(
        ident_of(hint, action, scheduler), hint.id, scheduler, payload(hint, action, mode, now), attempts=0, due=now
    )


def ident_of(hint: Hint, action: str, scheduler: str) -> str:
    """The webhook-id: another one once the hint is raised or renewed; a ticket's, once that was closed."""
    if action == TICKET:
        return f"{hint.id}.{TICKET}.{_closings(hint)}.{scheduler}"
    return f"{hint.id}.{action}.{int(hint.valid_until.timestamp())}.{scheduler}"


def asks_repair(hint: Hint) -> bool:
    """Whether a standing hint's node is a case for people: drained for what they must mend, or it failed its tests.

    Once a ticket about it was closed, only what its test says since counts.
    """
    if hint.job is not None or hint.is_control or hint.state not in LIVE_STATES:
        return False
    repair, closed = hint.evidence.repair, hint.evidence.ticket
    if closed is None:
        return repair is not None or hint.action == "drain"
    return repair is not None and repair.since > closed.time


def _closings(hint: Hint) -> int:
    return 0 if hint.evidence.ticket is None else hint.evidence.ticket.closings


def payload(hint: Hint, action: str, mode: Mode, now: datetime) -> dict[str, Any]:
    """The document that is sent: under 20 kB, without the evidence where that is too long.

    Of a proposal `action` is `proposed`, and `asks` what it would be: nobody can take it for an order. Of a ticket it
    is `ticket`, and `ticket` the id by which it is closed.
    """
    data = hint.to_row() | {
        "action": action,
        "mode": mode,
        "created": format_time(hint.created),
        "valid_until": format_time(hint.valid_until),
    }
    if action in (PROPOSED, TICKET):
        data["asks"] = hint.action
    if action == TICKET:
        data["ticket"] = f"{hint.id}.{_closings(hint)}"
    document = {"type": f"foreshock.hint.{action}", "timestamp": format_time(now), "data": data}
    if len(orjson.dumps(document)) > MAX_PAYLOAD_BYTES:
        data["evidence"] = {"left_out": "too long: GET /api/v1/hints has it"}
    return document


# Of verdicts: what receivers are told is no order, and is told in every mode. That of one that ended is a release.

VERDICT = "verdict"
_MOST_NAMED = 100
_TELLS = ("class", "name", "names", "node", "device", "cause", "action", "since", "reason", "jobs", "probability")


def verdict_delivery(found: Mapping[str, Any], what: str, receiver: str, now: datetime, renewal: str = "") -> Delivery:
    """What a receiver is told of a verdict (its JSON object, times as text): one delivery a revision, or a renewal."""
    told = {name: found[name] for name in (*_TELLS, "state", "revision", "gpu_hours_at_stake", "explained_by")}
    told |= {"nodes": found["nodes"][:_MOST_NAMED], "nodes_count": len(found["nodes"]), "what": what}
    told |= {"names": told["names"][:_MOST_NAMED], "jobs": told["jobs"][:_MOST_NAMED]}
    ended = found["state"] in ("explained", "closed")
    data = {
        "id": found["id"],
        "node": found["node"] or found["name"],
        "action": RELEASE if ended else VERDICT,
        "state": found["state"],
        "reason": found["reason"],
        "mode": "act",
        "verdict": told,
    }
    ident = f"{found['id']}.{found['revision']}{renewal}.{receiver}"
    document = {"type": f"foreshock.verdict.{found['state']}", "timestamp": format_time(now), "data": data}
    return Delivery(ident, found["id"], receiver, document, attempts=0, due=now)


def is_of_verdict(delivery: Delivery) -> bool:
    """Whether a delivery tells of a verdict."""
    return VERDICT in delivery.payload["data"]


def action_of(delivery: Delivery) -> str:
    """What a delivery asks: an action, `release`, or `proposed`."""
    return str(delivery.payload["data"]["action"])


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """delivered; retry (not before `retry_after_s`); refused (never again); gone (leave the receiver alone).

    `status` is that of HTTP. `slow`: what else the receiver is owed waits, too: it is away or has too much to do.
    """

    result: Literal["delivered", "retry", "refused", "gone"]
    detail: str
    retry_after_s: float = 0.0
    status: int | None = None
    slow: bool = False


class HintReceiver(Protocol):
    """One receiver of hints."""

    @property
    def name(self) -> str:
        """As the configuration names it; deliveries are kept apart by it."""

    @property
    def address(self) -> str:
        """Where it is; one that has said it is gone is tried again once this changes."""

    @property
    def send_shadow(self) -> bool:
        """Whether it wants to see shadow hints, as an observer."""

    @property
    def is_notice(self) -> bool:
        """Whether people read it: that it was delivered does not make a hint `sent`."""

    def wants(self, action: str, state: str) -> bool:
        """Whether it is to be told of hints of an action while they are in a state: approved, proposed, shadow."""

    def send(self, delivery: Delivery, now: datetime) -> DeliveryOutcome:
        """Hand one delivery over; `now` is the real time. Never raises for what the receiver does."""

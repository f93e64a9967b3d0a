"""Hands approved hints to the schedulers, from an outbox: retried with jitter, dropped when the hint has lapsed.

Nothing is sent in shadow mode, but to observers that asked for it (`send_shadow`), flagged `"mode": "shadow"`.
When a hint ends that a scheduler has taken, a `release` is owed to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa

from schedulers.scheduler import Outcome, Scheduler
from schedulers.settings import Mode
from store.database import writing
from store.event import format_time
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_DISPATCH, change_state, note, read_hint, read_hints
from store.outbox import Delivery, due_deliveries, has_error, owe, settle, taken_of_ended

# Seconds before attempt n + 1 (Standard Webhooks 1.0.0, schedule); a hint's own validity ends it sooner.
RETRY_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
MAX_PAYLOAD_BYTES = 20_000
_BATCH = 50
_RELEASE_FOR = timedelta(days=7)
_ENDED = ("withdrawn", "expired", "released")
_GIVEN_UP = {
    "expired": "the hint has ended",
    "superseded": "the hint was raised or renewed since",
    "failed": "the receiver is gone or no longer configured",
}


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One turn's means. `jitter` gives 0 to 1; `wall` is the real time, which signatures bear."""

    engine: sa.Engine
    schedulers: Sequence[Scheduler]
    mode: Mode
    jitter: Callable[[], float]
    wall: Callable[[], datetime]


def run_dispatch(means: Dispatch, now: datetime, keep_on: Callable[[], bool]) -> list[Outcome]:
    """Owe what is new, send what is due. `keep_on` is asked before each delivery: False ends the turn early."""
    schedulers = {scheduler.name: scheduler for scheduler in means.schedulers}
    with writing(means.engine).begin() as connection:
        _owe_new(connection, means, now)
        due = due_deliveries(connection, now, _BATCH)
        gone = {name for name, s in schedulers.items() if has_error(connection, name, _gone(s.address))}
    outcomes = []
    for delivery in due:
        if not keep_on():
            break
        scheduler = None if delivery.scheduler in gone else schedulers.get(delivery.scheduler)
        outcome = _attempt(means, delivery, scheduler, now)
        if outcome is not None:
            outcomes.append(outcome)
            if outcome.result == "gone":
                gone.add(delivery.scheduler)
    return outcomes


def _owe_new(connection: sa.Connection, means: Dispatch, now: datetime) -> None:
    """Rows for hints that are to be sent, and releases for ended ones that were."""
    owed: list[Delivery] = []
    for hint in read_hints(connection, states=("approved", "shadow")):
        sends = means.mode != "shadow" and hint.state == "approved"
        for scheduler in means.schedulers:
            if sends or (hint.state == "shadow" and scheduler.send_shadow):
                owed.append(_delivery(hint, hint.action, scheduler.name, means.mode, now))
    names = {scheduler.name: scheduler for scheduler in means.schedulers}
    for taken in taken_of_ended(connection, _ENDED, now - _RELEASE_FOR):
        shadow = taken.payload["data"]["mode"] == "shadow"
        ended = read_hint(connection, taken.hint)
        if ended is None or taken.scheduler not in names or taken.payload["data"]["action"] == "release":
            continue
        if ended.job is not None:
            continue  # what was asked of a job is over with it; a release would speak of the node
        if means.mode != "shadow" or shadow:
            owed.append(_delivery(ended, "release", taken.scheduler, "shadow" if shadow else means.mode, now))
    owe(connection, owed)


def _delivery(hint: Hint, action: str, scheduler: str, mode: Mode, now: datetime) -> Delivery:
    """The delivery of a hint; its id is the same however often it is made."""
    return Delivery(
        _ident(hint, action, scheduler), hint.id, scheduler, payload(hint, action, mode, now), attempts=0, due=now
    )


def _ident(hint: Hint, action: str, scheduler: str) -> str:
    return f"{hint.id}.{action}.{int(hint.valid_until.timestamp())}.{scheduler}"


def payload(hint: Hint, action: str, mode: Mode, now: datetime) -> dict[str, Any]:
    """The document that is sent: under 20 kB, without the evidence where that is too long."""
    data = asdict(hint) | {
        "action": action,
        "mode": mode,
        "created": format_time(hint.created),
        "valid_until": format_time(hint.valid_until),
    }
    document = {"type": f"foreshock.hint.{action}", "timestamp": format_time(now), "data": data}
    if len(orjson.dumps(document)) > MAX_PAYLOAD_BYTES:
        data["evidence"] = {"left_out": "too long: GET /api/v1/hints has it"}
    return document


def _attempt(means: Dispatch, delivery: Delivery, scheduler: Scheduler | None, now: datetime) -> Outcome | None:
    """One attempt at one delivery; None when there was nothing to be sent any more."""
    with means.engine.connect() as connection:
        hint = read_hint(connection, delivery.hint)
    release = delivery.payload["data"]["action"] == "release"
    if hint is None or not (release or (hint.state in OPEN_STATES and hint.valid_until > now)):
        _give_up(means, delivery, hint, now, "expired")
        return None
    if (
        not release
        and hint.state in ("approved", "sent")
        and delivery.id != _ident(hint, hint.action, delivery.scheduler)
    ):
        # Raised or renewed since: what is tried again late must not undo what came after it.
        _give_up(means, delivery, hint, now, "superseded")
        return None
    if scheduler is None:
        _give_up(means, delivery, hint, now, "failed")
        return None
    if means.mode == "shadow" and delivery.payload["data"]["mode"] != "shadow":
        return None
    outcome = scheduler.send(delivery, means.wall())
    _settle(means, delivery, hint, outcome, (now, scheduler.address))
    return outcome


def _give_up(means: Dispatch, delivery: Delivery, hint: Hint | None, now: datetime, state: str) -> None:
    error = _GIVEN_UP[state]
    with writing(means.engine).begin() as connection:
        kept = "expired" if state == "superseded" else state
        settle(connection, replace(delivery, state=kept, last_error=error))
        if hint is not None:
            note(connection, now, ACTOR_DISPATCH, hint, {"delivery": delivery.id, "outcome": state, "detail": error})


def _settle(means: Dispatch, delivery: Delivery, hint: Hint, outcome: Outcome, at: tuple[datetime, str]) -> None:
    """Write what came of an attempt, with its audit row; a hint that a scheduler took is `sent`."""
    now, address = at
    attempts = delivery.attempts + 1
    settled = replace(delivery, attempts=attempts, last_error=outcome.detail)
    if outcome.result == "delivered":
        settled = replace(settled, state="delivered", last_error=None)
    elif outcome.result == "gone":
        settled = replace(settled, state="failed", last_error=_gone(address))
    elif outcome.result == "refused" or attempts > len(RETRY_S):
        settled = replace(settled, state="failed")
    else:
        wait_s = max(RETRY_S[attempts - 1], outcome.retry_after_s) * (1 + 0.2 * means.jitter())
        settled = replace(settled, due=now + timedelta(seconds=wait_s))
    detail = {"delivery": delivery.id, "outcome": outcome.result, "detail": outcome.detail, "attempt": attempts}
    with writing(means.engine).begin() as connection:
        settle(connection, settled)
        if settled.state == "delivered" and hint.state == "approved":
            change_state(connection, hint, "sent", now, ACTOR_DISPATCH, detail)
        else:
            note(connection, now, ACTOR_DISPATCH, hint, detail)


def _gone(address: str) -> str:
    return f"HTTP 410 from {address}"

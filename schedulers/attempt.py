"""One attempt at one delivery: whether it is still to be made, what came of it, and when the next one is due."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.gate import may_tell
from schedulers.outgoing import PROPOSED, RELEASE, action_of, ident_of
from schedulers.scheduler import Outcome, Scheduler
from schedulers.settings import Mode, Stop
from store.database import writing
from store.delivery_log import Attempt, log_attempt
from store.hint import LIVE_STATES, OPEN_STATES, Hint
from store.hint_log import ACTOR_DISPATCH, change_state, note, read_hint
from store.outbox import Delivery, postpone, settle

# Seconds before attempt n + 1 (Standard Webhooks 1.0.0, schedule); a hint's own validity ends it sooner.
RETRY_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
_GIVEN_UP = {
    "expired": "the hint has ended",
    "superseded": "the hint was raised or renewed since",
    "failed": "the receiver is gone or no longer configured",
}


def _nothing_stopped(_connection: sa.Connection) -> Stop:
    return "none"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One turn's means. `jitter` gives 0 to 1; `wall` is the real time, which signatures bear; `stop`: what is."""

    engine: sa.Engine
    schedulers: Sequence[Scheduler]
    mode: Mode
    jitter: Callable[[], float]
    wall: Callable[[], datetime]
    stop: Callable[[sa.Connection], Stop] = _nothing_stopped


def attempt(means: Dispatch, delivery: Delivery, scheduler: Scheduler | None, now: datetime) -> Outcome | None:
    """Try one delivery; None when there was nothing to be sent, or not now."""
    with means.engine.connect() as connection:
        hint = read_hint(connection, delivery.hint)
        may_go = hint is None or may_tell(connection, means.stop(connection), hint, action_of(delivery) == RELEASE)
    why = over(delivery, hint, now)
    if hint is None or why is not None:
        _give_up(means, delivery, hint, now, why or "expired")
        return None
    if scheduler is None:
        _give_up(means, delivery, hint, now, "failed")
        return None
    if means.mode == "shadow" and delivery.payload["data"]["mode"] != "shadow":
        return None
    if not may_go:
        _wait(means, delivery, now)
        return None
    began = time.perf_counter()
    outcome = scheduler.send(delivery, means.wall())
    took = Attempt(
        *(delivery.id, delivery.hint, delivery.scheduler, now, outcome.result, outcome.status),
        duration_s=time.perf_counter() - began,
        detail=outcome.detail,
    )
    _settle(means, delivery, hint, outcome, (took, scheduler))
    return outcome


def over(delivery: Delivery, hint: Hint | None, now: datetime) -> str | None:
    """Why a delivery is not to be made any more; None where it is. A release always is."""
    action = action_of(delivery)
    if hint is None:
        return "expired"
    if action == RELEASE:
        return None
    if hint.state not in OPEN_STATES or hint.valid_until <= now:
        return "expired"
    # Raised, renewed or approved since: what is tried again late must not undo what came after it.
    current = PROPOSED if hint.state == "proposed" else hint.action
    if (hint.state in LIVE_STATES or action == PROPOSED) and delivery.id != ident_of(hint, current, delivery.scheduler):
        return "superseded"
    return None


def _wait(means: Dispatch, delivery: Delivery, now: datetime) -> None:
    """Look at a delivery that the kill switch holds up again later: it must not stand before those that may go out."""
    with writing(means.engine).begin() as connection:
        settle(connection, replace(delivery, due=now + timedelta(seconds=RETRY_S[0])))


def _give_up(means: Dispatch, delivery: Delivery, hint: Hint | None, now: datetime, state: str) -> None:
    error = _GIVEN_UP[state]
    with writing(means.engine).begin() as connection:
        kept = "expired" if state == "superseded" else state
        settle(connection, replace(delivery, state=kept, last_error=error))
        if hint is not None:
            note(connection, now, ACTOR_DISPATCH, hint, {"delivery": delivery.id, "outcome": state, "detail": error})


def _settle(means: Dispatch, delivery: Delivery, hint: Hint, outcome: Outcome, how: tuple[Attempt, Scheduler]) -> None:
    """Write what came of an attempt, with its log and audit rows; a hint that a scheduler took is `sent`."""
    took, scheduler = how
    settled, now = _after(means, delivery, outcome, took), took.time
    if outcome.result == "gone":
        settled = replace(settled, state="failed", last_error=gone(scheduler.address))
    detail = {"delivery": delivery.id, "outcome": outcome.result, "detail": outcome.detail, "attempt": settled.attempts}
    taken = settled.state == "delivered" and action_of(delivery) == hint.action and not scheduler.is_notice
    with writing(means.engine).begin() as connection:
        log_attempt(connection, took)
        settle(connection, settled)
        if outcome.slow:
            postpone(connection, delivery.scheduler, now + timedelta(seconds=max(outcome.retry_after_s, RETRY_S[0])))
        if taken and hint.state == "approved":
            change_state(connection, hint, "sent", now, ACTOR_DISPATCH, detail)
        else:
            note(connection, now, ACTOR_DISPATCH, hint, detail)


def _after(means: Dispatch, delivery: Delivery, outcome: Outcome, took: Attempt) -> Delivery:
    """The delivery after an attempt: done, given up, or due again."""
    attempts = delivery.attempts + 1
    settled = replace(delivery, attempts=attempts, last_error=outcome.detail)
    if outcome.result == "delivered":
        return replace(settled, state="delivered", last_error=None)
    if outcome.result == "refused" or attempts > len(RETRY_S):
        return replace(settled, state="failed")
    wait_s = max(RETRY_S[attempts - 1], outcome.retry_after_s) * (1 + 0.2 * means.jitter())
    return replace(settled, due=took.time + timedelta(seconds=wait_s))


def gone(address: str) -> str:
    """What stands as the error of a delivery whose receiver has said that it is gone."""
    return f"HTTP 410 from {address}"

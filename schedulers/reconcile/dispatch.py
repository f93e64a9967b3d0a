"""The outbox's turn: sends approved hints to receivers that cannot be read back, and retries with jitter.

In shadow mode nothing is sent, except to observers (`send_shadow`), marked `"mode": "shadow"`. A delivery is dropped
when its hint has lapsed. When a hint ends that a receiver took, a `release` is sent to it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.settings import Mode, Stop
from schedulers.reconcile.delivery import (
    PROPOSED,
    RELEASE,
    REPAIR,
    TICKET,
    DeliveryOutcome,
    HintReceiver,
    action_of,
    asks_repair,
    delivery_of,
    ident_of,
    is_of_verdict,
)
from schedulers.reconcile.gate import may_send
from store.database.connections import writing
from store.events.incident_thread import silenced_until
from store.hints.hint_log import ACTOR_DISPATCH, change_state, note, read_hint, read_hints
from store.hints.outbox import (
    Delivery,
    DeliveryAttempt,
    deliveries_of_ended_hints,
    due_deliveries,
    has_error,
    known_deliveries,
    log_attempt,
    postpone,
    queue_deliveries,
    save_attempt_result,
)
from store.records.hint import LIVE_STATES, OPEN_STATES, Hint
from store.verdicts.verdict_log import STANDING_STATES, verdict

# Seconds before attempt n + 1 (Standard Webhooks 1.0.0, schedule); a hint's own validity ends it sooner.
RETRY_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
# A silence may be lifted, or its verdict become worse: it is looked at again so soon.
_LOOK_AGAIN = timedelta(minutes=1)
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
    schedulers: Sequence[HintReceiver]
    mode: Mode
    jitter: Callable[[], float]
    wall: Callable[[], datetime]
    stop: Callable[[sa.Connection], Stop] = _nothing_stopped


def _attempt_verdict(
    means: Dispatch, delivery: Delivery, scheduler: HintReceiver | None, now: datetime
) -> DeliveryOutcome | None:
    """Tell a receiver of a verdict; what is newer of it is owed by itself, and takes the place of what is older.

    While a person silences it, it waits; that it has ended is told all the same.
    """
    with means.engine.connect() as connection:
        found = verdict(connection, delivery.hint)
        stands = found is not None and found.state in STANDING_STATES
        quiet = silenced_until(connection, found, now) if found is not None and stands else None
    if scheduler is None or found is None or found.revision > delivery.payload["data"]["verdict"]["revision"]:
        why = "superseded" if scheduler is not None else "failed"
        with writing(means.engine).begin() as connection:
            kept = replace(delivery, state="expired" if scheduler is not None else "failed", last_error=_GIVEN_UP[why])
            save_attempt_result(connection, kept)
        return None
    if quiet is not None:
        with writing(means.engine).begin() as connection:
            save_attempt_result(connection, replace(delivery, due=min(quiet, now + _LOOK_AGAIN)))
        return None
    began = time.perf_counter()
    outcome = scheduler.send(delivery, means.wall())
    took = DeliveryAttempt(
        *(delivery.id, delivery.hint, delivery.scheduler, now, outcome.result, outcome.status),
        duration_s=time.perf_counter() - began,
        detail=outcome.detail,
    )
    settled = _after(means, delivery, outcome, took)
    if outcome.result == "gone":
        settled = replace(settled, state="failed", last_error=gone_error(scheduler.address))
    with writing(means.engine).begin() as connection:
        log_attempt(connection, took)
        save_attempt_result(connection, settled)
        if outcome.slow:
            postpone(connection, delivery.scheduler, now + timedelta(seconds=max(outcome.retry_after_s, RETRY_S[0])))
    return outcome


def attempt(
    means: Dispatch, delivery: Delivery, scheduler: HintReceiver | None, now: datetime
) -> DeliveryOutcome | None:
    """Try one delivery; None when there was nothing to be sent, or not now."""
    with means.engine.connect() as connection:
        hint = read_hint(connection, delivery.hint)
        may_go = hint is None or may_send(connection, means.stop(connection), hint, action_of(delivery) == RELEASE)
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
    took = DeliveryAttempt(
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
    if action == TICKET and hint.state in OPEN_STATES:  # its id is the same after a renewal: it would not be owed again
        return None if asks_repair(hint) and delivery.id == ident_of(hint, TICKET, delivery.scheduler) else "superseded"
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
        save_attempt_result(connection, replace(delivery, due=now + timedelta(seconds=RETRY_S[0])))


def _give_up(means: Dispatch, delivery: Delivery, hint: Hint | None, now: datetime, state: str) -> None:
    error = _GIVEN_UP[state]
    with writing(means.engine).begin() as connection:
        kept = "expired" if state == "superseded" else state
        save_attempt_result(connection, replace(delivery, state=kept, last_error=error))
        if hint is not None:
            note(connection, now, ACTOR_DISPATCH, hint, {"delivery": delivery.id, "outcome": state, "detail": error})


def _settle(
    means: Dispatch, delivery: Delivery, hint: Hint, outcome: DeliveryOutcome, how: tuple[DeliveryAttempt, HintReceiver]
) -> None:
    """Write what came of an attempt, with its log and audit rows; a hint that a scheduler took is `sent`."""
    took, scheduler = how
    settled, now = _after(means, delivery, outcome, took), took.time
    if outcome.result == "gone":
        settled = replace(settled, state="failed", last_error=gone_error(scheduler.address))
    detail = {"delivery": delivery.id, "outcome": outcome.result, "detail": outcome.detail, "attempt": settled.attempts}
    taken = settled.state == "delivered" and action_of(delivery) == hint.action and not scheduler.is_notice
    with writing(means.engine).begin() as connection:
        log_attempt(connection, took)
        save_attempt_result(connection, settled)
        if outcome.slow:
            postpone(connection, delivery.scheduler, now + timedelta(seconds=max(outcome.retry_after_s, RETRY_S[0])))
        if taken and hint.state == "approved":
            change_state(connection, hint, "sent", now, ACTOR_DISPATCH, detail)
        else:
            note(connection, now, ACTOR_DISPATCH, hint, detail)


def _after(means: Dispatch, delivery: Delivery, outcome: DeliveryOutcome, took: DeliveryAttempt) -> Delivery:
    """The delivery after an attempt: done, given up, or due again."""
    attempts = delivery.attempts + 1
    settled = replace(delivery, attempts=attempts, last_error=outcome.detail)
    if outcome.result == "delivered":
        return replace(settled, state="delivered", last_error=None)
    if outcome.result == "refused" or attempts > len(RETRY_S):
        return replace(settled, state="failed")
    wait_s = max(RETRY_S[attempts - 1], outcome.retry_after_s) * (1 + 0.2 * means.jitter())
    return replace(settled, due=took.time + timedelta(seconds=wait_s))


def gone_error(address: str) -> str:
    """What stands as the error of a delivery whose receiver has said that it is gone."""
    return f"HTTP 410 from {address}"


_BATCH = 50
_RELEASE_FOR = timedelta(days=7)
_ENDED = ("withdrawn", "expired", "released")


def run_dispatch(means: Dispatch, now: datetime, keep_on: Callable[[], bool]) -> list[DeliveryOutcome]:
    """Owe what is new, send what is due. `keep_on` is asked before each delivery: False ends the turn early."""
    schedulers = {scheduler.name: scheduler for scheduler in means.schedulers}
    began = means.wall()
    with writing(means.engine).begin() as connection:
        _owe_new(connection, means, now)
        due = due_deliveries(connection, now, _BATCH)
        away = {name for name, s in schedulers.items() if has_error(connection, name, gone_error(s.address))}
    outcomes, waiting = [], set[str]()
    for delivery in due:
        if not keep_on():
            break
        if delivery.scheduler in waiting:
            continue
        scheduler = None if delivery.scheduler in away else schedulers.get(delivery.scheduler)
        # A turn may last minutes where receivers do not answer, and a hint may lapse in the meantime.
        tried = _attempt_verdict if is_of_verdict(delivery) else attempt
        outcome = tried(means, delivery, scheduler, now + (means.wall() - began))
        if outcome is None:
            continue
        outcomes.append(outcome)
        if outcome.result == "gone":
            away.add(delivery.scheduler)
        if outcome.slow:
            waiting.add(delivery.scheduler)
    return outcomes


def _owe_new(connection: sa.Connection, means: Dispatch, now: datetime) -> None:
    """Rows for hints that are to be sent, and releases for ended ones that were."""
    owed = [delivery_of(hint, action, name, means.mode, now) for hint, action, name in _not_yet_owed(connection, means)]
    names = {scheduler.name: scheduler for scheduler in means.schedulers}
    for taken in deliveries_of_ended_hints(connection, _ENDED, now - _RELEASE_FOR):
        receiver = names.get(taken.scheduler)
        if receiver is None or action_of(taken) in (RELEASE, TICKET):
            continue
        ended = read_hint(connection, taken.hint)
        if ended is None or _is_over_by_itself(ended, receiver):
            continue
        shadow = taken.payload["data"]["mode"] == "shadow"
        if means.mode != "shadow" or shadow:
            owed.append(delivery_of(ended, RELEASE, taken.scheduler, "shadow" if shadow else means.mode, now))
    queue_deliveries(connection, owed)


def _not_yet_owed(connection: sa.Connection, means: Dispatch) -> list[tuple[Hint, str, str]]:
    """Hints that are to be sent, each with what of it to whom, but for those that stand in the outbox.

    A hint may be sent or confirmed before anything is owed here: another scheduler, which is read back, was faster.
    """
    wanted: dict[str, tuple[Hint, str, str]] = {}
    for hint in read_hints(connection, states=(*LIVE_STATES, "shadow", "proposed")):
        if hint.state != "shadow" and means.mode == "shadow":
            continue
        action = PROPOSED if hint.state == "proposed" else hint.action
        state = "approved" if hint.state in LIVE_STATES else hint.state
        for scheduler in means.schedulers:
            if scheduler.wants(hint.action, state):
                wanted[ident_of(hint, action, scheduler.name)] = (hint, action, scheduler.name)
            if asks_repair(hint) and scheduler.wants(hint.action, REPAIR):
                wanted[ident_of(hint, TICKET, scheduler.name)] = (hint, TICKET, scheduler.name)
    known = known_deliveries(connection, wanted)
    return [found for ident, found in wanted.items() if ident not in known]


def _is_over_by_itself(ended: Hint, scheduler: HintReceiver) -> bool:
    """What was asked of a job is over with it; a release would speak of the node. People are told all the same."""
    return ended.job is not None and not scheduler.is_notice

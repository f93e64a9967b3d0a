"""Hands approved hints to the schedulers, from an outbox: retried with jitter, dropped when the hint has lapsed.

Nothing is sent in shadow mode, but to observers that asked for it (`send_shadow`), flagged `"mode": "shadow"`.
When a hint ends that a scheduler has taken, a `release` is owed to it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.attempt import RETRY_S as RETRY_S
from schedulers.attempt import Dispatch as Dispatch
from schedulers.attempt import attempt, gone
from schedulers.outgoing import PROPOSED, RELEASE, action_of, delivery_of, ident_of
from schedulers.scheduler import Outcome, Scheduler
from store.database import writing
from store.hint import LIVE_STATES, Hint
from store.hint_log import read_hint, read_hints
from store.outbox import due_deliveries, has_error, known_deliveries, owe, taken_of_ended

_BATCH = 50
_RELEASE_FOR = timedelta(days=7)
_ENDED = ("withdrawn", "expired", "released")


def run_dispatch(means: Dispatch, now: datetime, keep_on: Callable[[], bool]) -> list[Outcome]:
    """Owe what is new, send what is due. `keep_on` is asked before each delivery: False ends the turn early."""
    schedulers = {scheduler.name: scheduler for scheduler in means.schedulers}
    began = means.wall()
    with writing(means.engine).begin() as connection:
        _owe_new(connection, means, now)
        due = due_deliveries(connection, now, _BATCH)
        away = {name for name, s in schedulers.items() if has_error(connection, name, gone(s.address))}
    outcomes, waiting = [], set[str]()
    for delivery in due:
        if not keep_on():
            break
        if delivery.scheduler in waiting:
            continue
        scheduler = None if delivery.scheduler in away else schedulers.get(delivery.scheduler)
        # A turn may last minutes where receivers do not answer, and a hint may lapse in the meantime.
        outcome = attempt(means, delivery, scheduler, now + (means.wall() - began))
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
    for taken in taken_of_ended(connection, _ENDED, now - _RELEASE_FOR):
        ended = read_hint(connection, taken.hint)
        told = names.get(taken.scheduler)
        if ended is None or told is None or action_of(taken) == RELEASE or _is_over_by_itself(ended, told):
            continue
        shadow = taken.payload["data"]["mode"] == "shadow"
        if means.mode != "shadow" or shadow:
            owed.append(delivery_of(ended, RELEASE, taken.scheduler, "shadow" if shadow else means.mode, now))
    owe(connection, owed)


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
    known = known_deliveries(connection, wanted)
    return [found for ident, found in wanted.items() if ident not in known]


def _is_over_by_itself(ended: Hint, scheduler: Scheduler) -> bool:
    """What was asked of a job is over with it; a release would speak of the node. People are told all the same."""
    return ended.job is not None and not scheduler.is_notice

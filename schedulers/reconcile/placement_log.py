"""Writes the holds of one scheduler, the audit rows about them, and the state that their hints come to.

A hint is `confirmed` when each scheduler that knows its node holds it, or finds it held by others. A scheduler that
is away is waited for, but keeps no other from acting. Each audit row has the scheduler's name; `step` is the hold's
state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from schedulers.reconcile.actuator import OrderReport
from schedulers.reconcile.plan import AGAIN_S, JobPlan, OrderPlan, is_live
from store.hints.hint_log import (
    ACTOR_DISPATCH,
    change_state,
    close_hint,
    note_all,
    read_hint,
    read_hints_by_id,
)
from store.hints.holds import SchedulerHold, holds_of, save_holds
from store.records.hint import OPEN_STATES, Hint, HintState

# A node may be away for a while, as one that is installed anew; only then is it one that nobody knows.
ABSENT_FOR = timedelta(minutes=10)


def state_of_hint(
    hint: Hint, placements: Sequence[SchedulerHold], schedulers: Sequence[str], now: datetime
) -> HintState:
    """The state that a live hint of a node comes to; its own where nothing has changed.

    Args:
        placements: of this hint, of any schedulers.
        schedulers: the names of all that are read back.
    """
    mine = {placement.scheduler: placement for placement in placements if placement.scheduler in schedulers}
    if not mine or not is_live(hint, now):
        return hint.state
    if len(mine) == len(schedulers) and all(_is_lost(placement, now) for placement in mine.values()):
        return "withdrawn"
    held = [each for each in mine.values() if each.state == "confirmed" and each.action == hint.action]
    met = [*held, *(each for each in mine.values() if each.state == "foreign")]
    settled = len(met) + sum(each.state in ("absent", "refused") for each in mine.values())
    if met and settled == len(schedulers):
        return "confirmed"
    return "sent" if hint.state == "approved" and held else hint.state


def _is_lost(placement: SchedulerHold, now: datetime) -> bool:
    since = placement.observed
    return placement.state == "absent" and since is not None and now - since >= ABSENT_FOR


def placement_after_report(was: SchedulerHold, report: OrderReport, now: datetime) -> SchedulerHold:
    """A placement after the scheduler's answer. Whether it was carried out is for the next observation to tell."""
    detail = report.detail[:300] or None
    if was.action == "release":
        # Nothing but its absence ends a hold of ours: whatever the answer, it is asked again until that is seen.
        return replace(was, detail=None if report.result == "done" else detail)
    if report.result in ("foreign", "absent", "refused"):
        return replace(was, state=report.result, observed=now, detail=detail)
    return replace(was, detail=None if report.result == "done" else detail)


def placement_without_answer(was: SchedulerHold, now: datetime) -> SchedulerHold:
    """A placement whose order got no answer: what it came to is seen once the scheduler is back, and it is due then."""
    return replace(was, due=min(was.due, now), detail="the scheduler did not answer")


# An order that has had no effect for long is noted once in so many times.
_SELDOM = 12
_TRIES = 5


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """Of which scheduler, among which; the hints that are known; the moment.

    `gone`: the nodes of these hints that this scheduler does not know.
    """

    scheduler: str
    schedulers: tuple[str, ...]
    hints: Mapping[str, Hint]
    now: datetime
    gone: frozenset[str] = frozenset()

    @property
    def actor(self) -> str:
        """Who says what was seen on the scheduler, in the audit."""
        return f"scheduler:{self.scheduler}"


def write_down(
    connection: sa.Connection, placed: PlacementContext, plan: OrderPlan, jobs: JobPlan, dry: bool = False
) -> bool:
    """Write a plan; `dry`: only tell whether there is anything to be written."""
    changed = [*plan.placements, *jobs.placements]
    if dry:
        return bool(changed or plan.undone) or any(True for _ in _moves(connection, placed))
    save_holds(connection, changed)
    note_all(connection, placed.now, _notes(placed, changed, {}))
    for hint in plan.undone:
        _close(connection, placed, hint, "a person took the hold off")
    _move(connection, placed)
    return True


def write_placements(
    connection: sa.Connection,
    placed: PlacementContext,
    changed: Sequence[SchedulerHold],
    answered: Mapping[str, OrderReport],
) -> None:
    """Write what came of orders; a hint that a scheduler took is `sent`."""
    save_holds(connection, changed)
    note_all(connection, placed.now, _notes(placed, changed, answered))
    for hint in read_hints_by_id(connection, answered):
        if answered[hint.id].result == "done" and hint.state == "approved":
            change_state(connection, hint, "sent", placed.now, placed.actor, {"scheduler": placed.scheduler})


def _moves(connection: sa.Connection, placed: PlacementContext) -> Iterable[tuple[Hint, str]]:
    """The live hints that stand elsewhere now, by what all schedulers say of them."""
    # A hint that is confirmed moves on only where no scheduler knows its node any more.
    live = [
        hint
        for hint in placed.hints.values()
        if (hint.state != "confirmed" or hint.node in placed.gone) and is_live(hint, placed.now)
    ]
    found = holds_of(connection, [hint.id for hint in live])
    for hint in live:
        state = state_of_hint(hint, found.get(hint.id, ()), placed.schedulers, placed.now)
        if state != hint.state:
            yield hint, state


def _move(connection: sa.Connection, placed: PlacementContext) -> None:
    for hint, state in list(_moves(connection, placed)):
        now, detail = placed.now, {"scheduler": placed.scheduler}
        if state == "withdrawn":
            _close(connection, placed, hint, f"no scheduler knows node {hint.node}")
            continue
        moved = hint
        if hint.state == "approved":
            moved = change_state(connection, hint, "sent", now, placed.actor, detail)
        if state == "confirmed" and moved.state == "sent":
            change_state(connection, moved, "confirmed", now, placed.actor, detail)


def _close(connection: sa.Connection, placed: PlacementContext, hint: Hint, why: str) -> None:
    """Withdraw a hint, also where somebody changes it at the same moment."""
    for _ in range(_TRIES):
        current = read_hint(connection, hint.id)
        if current is None or current.state not in OPEN_STATES:
            return
        detail = {"scheduler": placed.scheduler, "why": why}
        close_hint(connection, current, "withdrawn", placed.now, placed.actor, detail)
    raise RuntimeError(f"hint {hint.id} is changed all the time: it could not be withdrawn, although {why}")


def _notes(
    placed: PlacementContext, changed: Sequence[SchedulerHold], answered: Mapping[str, OrderReport]
) -> Iterator[tuple[str, Hint, Mapping[str, Any]]]:
    """The audit's rows on placements: who, of which hint, what."""
    for placement in changed:
        hint, report = placed.hints.get(placement.hint), answered.get(placement.hint)
        if hint is None:
            continue
        detail: dict[str, Any] = {"scheduler": placement.scheduler, "step": placement.state, "hint": placement.action}
        detail |= {} if placement.detail is None else {"detail": placement.detail}
        detail |= {} if report is None else {"outcome": report.result}
        if placement.state != "asked":
            yield placed.actor, hint, detail
        elif report is not None or placement.attempts <= len(AGAIN_S) or placement.attempts % _SELDOM == 0:
            yield ACTOR_DISPATCH, hint, {**detail, "attempt": placement.attempts}

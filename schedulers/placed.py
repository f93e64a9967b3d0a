"""Writes down what was ordered, answered and seen of hints on one scheduler, with the audit and what it makes of hints.

Every row of the audit on a placement bears the scheduler's name; `step` is the placement's state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from schedulers.actuator import Report
from schedulers.reconcile import AGAIN_S, Plan, is_live
from schedulers.reconcile_jobs import JobPlan
from schedulers.standing import standing
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_DISPATCH, change_state, close_hint, note_all, read_hint, read_hints_by_id
from store.placements import Placement, placements_of, save_placements

# An order that has had no effect for long is noted once in so many times.
_SELDOM = 12
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Placed:
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


def write_down(connection: sa.Connection, placed: Placed, plan: Plan, jobs: JobPlan, dry: bool = False) -> bool:
    """Write a plan; `dry`: only tell whether there is anything to be written."""
    changed = [*plan.placements, *jobs.placements]
    if dry:
        return bool(changed or plan.undone) or any(True for _ in _moves(connection, placed))
    save_placements(connection, changed)
    note_all(connection, placed.now, _notes(placed, changed, {}))
    for hint in plan.undone:
        _close(connection, placed, hint, "a person took the hold off")
    _move(connection, placed)
    return True


def write_placements(
    connection: sa.Connection, placed: Placed, changed: Sequence[Placement], answered: Mapping[str, Report]
) -> None:
    """Write what came of orders; a hint that a scheduler took is `sent`."""
    save_placements(connection, changed)
    note_all(connection, placed.now, _notes(placed, changed, answered))
    for hint in read_hints_by_id(connection, answered):
        if answered[hint.id].result == "done" and hint.state == "approved":
            change_state(connection, hint, "sent", placed.now, placed.actor, {"scheduler": placed.scheduler})


def _moves(connection: sa.Connection, placed: Placed) -> Iterable[tuple[Hint, str]]:
    """The live hints that stand elsewhere now, by what all schedulers say of them."""
    # A hint that is confirmed moves on only where no scheduler knows its node any more.
    live = [
        hint
        for hint in placed.hints.values()
        if (hint.state != "confirmed" or hint.node in placed.gone) and is_live(hint, placed.now)
    ]
    found = placements_of(connection, [hint.id for hint in live])
    for hint in live:
        state = standing(hint, found.get(hint.id, ()), placed.schedulers, placed.now)
        if state != hint.state:
            yield hint, state


def _move(connection: sa.Connection, placed: Placed) -> None:
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


def _close(connection: sa.Connection, placed: Placed, hint: Hint, why: str) -> None:
    """Withdraw a hint, also where somebody changes it at the same moment."""
    for _ in range(_TRIES):
        current = read_hint(connection, hint.id)
        if current is None or current.state not in OPEN_STATES:
            return
        detail = {"scheduler": placed.scheduler, "why": why}
        close_hint(connection, current, "withdrawn", placed.now, placed.actor, detail)
    raise RuntimeError(f"hint {hint.id} is changed all the time: it could not be withdrawn, although {why}")


def _notes(
    placed: Placed, changed: Sequence[Placement], answered: Mapping[str, Report]
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

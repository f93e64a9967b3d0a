"""Whether hints were right: one row each, written once their time is over. On the table `hint_outcomes`.

A hint that a scheduler took is censored: nobody knows what its node would have done. What such hints did is told apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from store.records.hint import OPEN_STATES, Hint, hint_of
from store.tables import hint_tables, schema
from store.tables.bulk_rows import is_one_of

_TABLE, _HINTS, _AUDIT = hint_tables.hint_outcomes, hint_tables.hints, schema.audit
_SENT, _REQUESTED = ("sent", "confirmed"), ("proposed", "approved")


@dataclass(frozen=True, slots=True)
class HintOutcome:
    """What came of one hint. `lead_s`: from the hint to the first that it foretold, an outage or a run's stop.

    GPU-hours: what it cost and saved, or would have; None where that is not known.
    """

    hint: str
    judged: datetime
    right: bool
    outage_start: datetime | None = None
    lead_s: float | None = None
    held_gpu_h: float | None = None
    saved_gpu_h: float | None = None


class JudgedHint(NamedTuple):
    """What there is to know of a hint for the sums; `taken` and `asked`: whether the audit has seen it so."""

    id: str
    action: str
    is_control: bool
    taken: bool
    asked: bool


def audited_states(connection: sa.Connection, hints: Iterable[str]) -> dict[str, set[str]]:
    """The states that the audit has seen some hints in."""
    listed, found = sorted(set(hints)), dict[str, set[str]]()
    if listed:
        query = sa.select(_AUDIT.c.subject, _AUDIT.c.action).where(is_one_of(connection, _AUDIT.c.subject, listed))
        for subject, state in connection.execute(query.distinct()).all():
            found.setdefault(subject, set()).add(state)
    return found


def sent_hints(connection: sa.Connection, hints: Iterable[str]) -> frozenset[str]:
    """Those hints that any scheduler has ever taken, by the audit."""
    states = audited_states(connection, hints)
    return frozenset(hint for hint, seen in states.items() if not seen.isdisjoint(_SENT))


def unjudged_hints(connection: sa.Connection, before: datetime, latest: datetime, limit: int) -> list[Hint]:
    """Hints that have not been judged: made before a moment and ended, or made before an earlier one; oldest first."""
    query = (
        sa.select(_HINTS)
        .outerjoin(_TABLE, _TABLE.c.hint == _HINTS.c.id)
        .where(_TABLE.c.hint.is_(None), _HINTS.c.created < before)
        .where(sa.or_(_HINTS.c.state.not_in(OPEN_STATES), _HINTS.c.created < latest))
        .order_by(_HINTS.c.created, _HINTS.c.id)
    )
    return [hint_of(row) for row in connection.execute(query.limit(limit)).mappings()]


def save_outcomes(connection: sa.Connection, outcomes: Sequence[HintOutcome]) -> None:
    """Write what came of some hints; each is judged once."""
    if outcomes:
        connection.execute(_TABLE.insert(), [asdict(outcome) for outcome in outcomes])


def outcomes_of(connection: sa.Connection, hints: Iterable[str]) -> dict[str, HintOutcome]:
    """What came of those hints that have been judged, by their ids."""
    listed = sorted(set(hints))
    if not listed:
        return {}
    rows = connection.execute(sa.select(_TABLE).where(is_one_of(connection, _TABLE.c.hint, listed)))
    return {row.hint: HintOutcome(*row) for row in rows}


def judged_hints(connection: sa.Connection, since: datetime, until: datetime) -> list[tuple[JudgedHint, HintOutcome]]:
    """The hints made in [since, until) that have been judged, with what came of them, oldest first."""
    seen = {"taken": _SENT, "asked": _REQUESTED}
    marks = (
        sa.func.max(sa.case((_AUDIT.c.action.in_(states), 1), else_=0)).label(name) for name, states in seen.items()
    )
    told = _TABLE.join(_HINTS, _HINTS.c.id == _TABLE.c.hint).outerjoin(_AUDIT, _AUDIT.c.subject == _HINTS.c.id)
    ids = sa.select(_HINTS.c.id, *marks).select_from(told)
    ids = ids.where(_HINTS.c.created >= since, _HINTS.c.created < until).group_by(_HINTS.c.id)
    found = ids.subquery()
    control = _HINTS.c.evidence["control"].as_boolean()
    query = (
        sa.select(_HINTS.c.id, _HINTS.c.action, control, found.c.taken, found.c.asked, *_TABLE.columns)
        .join(found, found.c.id == _HINTS.c.id)
        .join(_TABLE, _TABLE.c.hint == _HINTS.c.id)
        .order_by(_HINTS.c.created, _HINTS.c.id)
    )
    rows = connection.execute(query).all()
    return [
        (JudgedHint(ident, action, bool(control), bool(taken), bool(asked)), HintOutcome(*outcome))
        for ident, action, control, taken, asked, *outcome in rows
    ]

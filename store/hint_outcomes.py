"""Whether hints were right: one row each, written once their time is over. On the table `hint_outcomes`.

A hint that a scheduler took is censored: nobody knows what its node would have done. What such hints did is told apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.bulk_rows import among
from store.hint import Hint
from store.hint_log import hint_of

_TABLE, _HINTS, _AUDIT = schema.hint_outcomes, schema.hints, schema.audit
_TAKEN = ("sent", "confirmed")


@dataclass(frozen=True, slots=True)
class HintOutcome:
    """What came of one hint. `lead_s`: from the hint to the outage. GPU-hours: what it cost and saved, or would have;
    None where that is not known."""

    hint: str
    judged: datetime
    right: bool
    outage_start: datetime | None = None
    lead_s: float | None = None
    held_gpu_h: float | None = None
    saved_gpu_h: float | None = None


def taken_hints(connection: sa.Connection, hints: Iterable[str]) -> frozenset[str]:
    """Those hints that any scheduler has ever taken, by the audit."""
    listed = sorted(set(hints))
    if not listed:
        return frozenset()
    query = sa.select(_AUDIT.c.subject).where(among(connection, _AUDIT.c.subject, listed))
    return frozenset(connection.scalars(query.where(_AUDIT.c.action.in_(_TAKEN)).distinct()))


def unjudged_hints(connection: sa.Connection, before: datetime, limit: int) -> list[Hint]:
    """Hints made before a moment that have ended or not, and have not been judged; the oldest first."""
    query = (
        sa.select(_HINTS)
        .outerjoin(_TABLE, _TABLE.c.hint == _HINTS.c.id)
        .where(_TABLE.c.hint.is_(None), _HINTS.c.created < before)
        .order_by(_HINTS.c.created, _HINTS.c.id)
    )
    return [hint_of(row) for row in connection.execute(query.limit(limit)).mappings()]


def save_outcomes(connection: sa.Connection, outcomes: Sequence[HintOutcome]) -> None:
    """Write what came of some hints; each is judged once."""
    if outcomes:
        connection.execute(_TABLE.insert(), [asdict(outcome) for outcome in outcomes])


def judged_hints(connection: sa.Connection, since: datetime, until: datetime) -> list[tuple[Hint, HintOutcome]]:
    """The hints made in [since, until) that have been judged, with what came of them, oldest first."""
    outcome = [column.label(f"outcome_{column.name}") for column in _TABLE.columns]
    query = (
        sa.select(*_HINTS.columns, *outcome)
        .join(_TABLE, _TABLE.c.hint == _HINTS.c.id)
        .where(_HINTS.c.created >= since, _HINTS.c.created < until)
        .order_by(_HINTS.c.created, _HINTS.c.id)
    )
    return [(hint_of(row), _of(row)) for row in connection.execute(query).mappings()]


def _of(row: Any) -> HintOutcome:
    return HintOutcome(**{name: row[f"outcome_{name}"] for name in HintOutcome.__slots__})

"""Which reasons of outages were judged how: the label that the predictor learns, laid open.

judged_reasons(connection, reasons)    # one row a state and reason, the commonest first
judge_again(connection, reasons, now)  # what is stored becomes what the table says today
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

import sqlalchemy as sa

from store.events.append import append_outages
from store.records.event import Cause
from store.records.outage import Outage, OutageReasons
from store.tables import schema

JudgedBy: TypeAlias = Literal["site", "table", "nothing"]
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class JudgedReason:
    """A state and reason: how many outages and nodes have it, and what it means. `stale`: outages stored otherwise.

    `by` is who says so: a row of the site's own, of the shipped table, or nothing (unplanned, of unknown cause).
    """

    state: str
    reason: str
    outages: int
    nodes: int
    planned: bool
    cause: Cause
    by: JudgedBy
    pattern: str | None
    stale: int


def judged_reasons(connection: sa.Connection, reasons: OutageReasons) -> list[JudgedReason]:
    """Every state and reason that stored outages have, the commonest first."""
    table = schema.outages
    same = (table.c.state, table.c.reason)
    nodes = sa.func.count(sa.distinct(table.c.node))
    counts = {(row[0], row[1]): row[2] for row in connection.execute(sa.select(*same, nodes).group_by(*same))}
    query = sa.select(*same, table.c.planned, table.c.cause, sa.func.count()).group_by(
        *same, table.c.planned, table.c.cause
    )
    stored: dict[tuple[str, str], dict[tuple[bool, str], int]] = {}
    for state, reason, planned, cause, count in connection.execute(query):
        stored.setdefault((state, reason), {})[(planned, cause)] = count
    found = []
    for (state, reason), kinds in stored.items():
        rule, (planned, cause) = reasons.rule(state, reason), reasons.judge(state, reason)
        by: JudgedBy = "nothing" if rule is None else "site" if rule.own else "table"
        count = sum(kinds.values())
        stale = count - kinds.get((planned, cause), 0)
        pattern = None if rule is None else rule.text
        found.append(JudgedReason(state, reason, count, counts[state, reason], planned, cause, by, pattern, stale))
    return sorted(found, key=lambda one: (-one.outages, one.state, one.reason))


def judge_again(connection: sa.Connection, reasons: OutageReasons, now: datetime) -> int:
    """Store of every outage what its reason means today; returns how many changed.

    Runs' ledgers are made anew where it matters.
    """
    table = schema.outages
    changed: list[Outage] = []
    for one in judged_reasons(connection, reasons):
        if one.stale:
            query = sa.select(table).where(table.c.state == one.state, table.c.reason == one.reason)
            otherwise = sa.or_(table.c.planned != one.planned, table.c.cause != one.cause)
            rows = connection.execute(query.where(otherwise)).mappings()
            changed += [replace(Outage(**row), planned=one.planned, cause=one.cause) for row in rows]
    for batch in range(0, len(changed), _BATCH):
        append_outages(connection, changed[batch : batch + _BATCH], now)
    return len(changed)


def reasons_told(found: Sequence[JudgedReason]) -> dict[str, int]:
    """The reasons in numbers: of outages, of those that were planned, and of those whose reason no row knows."""
    return {
        "reasons": len(found),
        "outages": sum(one.outages for one in found),
        "planned": sum(one.outages for one in found if one.planned),
        "by_site": sum(one.outages for one in found if one.by == "site"),
        "by_nothing": sum(one.outages for one in found if one.by == "nothing"),
        "stale": sum(one.stale for one in found),
    }

"""A node's days: how many events of each kind, and its telemetry; from what is still there and from what was pruned.

A row is either there or in the days that it was summed up to, never in both; one statement sees one state of the two.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.rollup_days import day_of, summary


def event_days(
    connection: sa.Connection, node: str, since: datetime, until: datetime
) -> dict[datetime, dict[str, int]]:
    """The node's events of since <= time < until, both midnights: day -> kind -> count."""
    events, days = schema.events, schema.event_days
    dialect = connection.dialect.name
    day = day_of(dialect, events.c.time).label("day")
    there = sa.select(day, events.c.kind, sa.func.count().label("count")).where(
        events.c.node == node, events.c.time >= since, events.c.time < until
    )
    gone = sa.select(days.c.day, days.c.kind, sa.func.sum(days.c.count).label("count")).where(
        days.c.node == node, days.c.day >= since, days.c.day < until
    )
    both = sa.union_all(there.group_by(day, events.c.kind), gone.group_by(days.c.day, days.c.kind))
    found: dict[datetime, dict[str, int]] = {}
    for moment, kind, count in connection.execute(both):
        kinds = found.setdefault(moment, {})
        kinds[kind] = kinds.get(kind, 0) + int(count)
    return found


def telemetry_days(
    connection: sa.Connection, node: str, since: datetime, until: datetime
) -> dict[datetime, dict[str, Any]]:
    """The node's days of telemetry of since <= time < until, both midnights: day -> the columns of `telemetry_days`.

    Of a day that is half pruned both halves are joined: see `join`.
    """
    hours, days = schema.telemetry, schema.telemetry_days
    chosen = sa.select(hours).where(hours.c.node == node, hours.c.time >= since, hours.c.time < until).subquery()
    there = summary(connection.dialect.name, "telemetry", chosen)
    names = [column.name for column in there.selected_columns]
    gone = sa.select(*(days.c[name] for name in names)).where(
        days.c.node == node, days.c.day >= since, days.c.day < until
    )
    found: dict[datetime, dict[str, Any]] = {}
    for row in connection.execute(sa.union_all(there, gone)).mappings():
        values = {name: row[name] for name in names if name not in ("node", "day")}
        other = found.get(row["day"])
        found[row["day"]] = values if other is None else join(other, values)
    return found


def join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two parts of one day: sums, extremes and means as `store.rollup_days.adding` does it."""
    samples = one["samples"] + other["samples"]
    joined: dict[str, Any] = {"hours": one["hours"] + other["hours"], "samples": samples}
    for name in one.keys() - joined.keys():
        known = [part for part in (one, other) if part[name] is not None]
        if len(known) < 2:  # both
            joined[name] = known[0][name] if known else None
        elif "mean" in name:
            joined[name] = sum(part[name] * part["samples"] for part in known) / samples if samples else None
        else:
            joined[name] = (min if "min" in name else max)(part[name] for part in known)
    return joined

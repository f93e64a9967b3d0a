"""The past of one node: hints, telemetry and scores since a moment, and its days, pruned ones included."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.tables import hint_tables, schema
from store.tables.day_totals import DayStart, summary

# A row is either there or in the day that it was summed up to, never in both: one statement sees one state of the two.


def event_days(
    connection: sa.Connection, node: str, since: datetime, until: datetime
) -> dict[datetime, dict[str, int]]:
    """The node's events of since <= time < until, both midnights: day -> kind -> count."""
    events, days = schema.events, schema.event_days
    day = DayStart(events.c.time).label("day")
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
    there = summary("telemetry", chosen)
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
    """Two parts of one day: sums, extremes and means as `store.tables.day_totals.adding` does it."""
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


_HORIZON_NAMES = {24: "score_24h", 168: "score_7d"}


def node_hints(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's hints made since a moment, and those still valid then."""
    table = hint_tables.hints
    query = sa.select(table).where(table.c.node == node, table.c.valid_until >= since)
    return [dict(row) for row in connection.execute(query.order_by(table.c.created, table.c.id)).mappings()]


def node_telemetry(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's roll-ups, one an hour; hours without samples are missing."""
    table = schema.telemetry
    # What is kept of single devices is many times the rest.
    columns = [column for column in table.columns if column.name not in ("node", "devices")]
    query = sa.select(*columns).where(table.c.node == node, table.c.time >= since).order_by(table.c.time)
    return [dict(row) for row in connection.execute(query).mappings()]


def node_scores(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's scores over time: `time`, `score_24h` and `score_7d` (None where one was not made)."""
    table = schema.scores
    query = sa.select(table.c.time, table.c.horizon_h, table.c.score).where(table.c.node == node, table.c.time >= since)
    found: dict[datetime, dict[str, Any]] = {}
    for row in connection.execute(query.order_by(table.c.time)):
        if row.horizon_h in _HORIZON_NAMES:
            line = found.setdefault(row.time, {"time": row.time, "score_24h": None, "score_7d": None})
            line[_HORIZON_NAMES[row.horizon_h]] = row.score
    return list(found.values())

"""One node's past: hints, telemetry and scores since a moment, each oldest first."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema

_HORIZON_NAMES = {24: "score_24h", 168: "score_7d"}


def node_hints(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's hints made since a moment, and those still valid then."""
    table = schema.hints
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

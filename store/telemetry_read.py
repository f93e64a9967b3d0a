"""Reading a node's roll-ups back, with what is told of its devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema

_COLUMNS = tuple(column for column in schema.telemetry.columns if column.name != "node")


@dataclass(frozen=True, slots=True)
class TelemetryWindow:
    """What is asked for: since <= time < until, and after a time where a page goes on; one device, one measure."""

    since: datetime | None = None
    until: datetime | None = None
    after: datetime | None = None
    device: str | None = None
    measure: str | None = None


def telemetry_page(connection: sa.Connection, node: str, window: TelemetryWindow, limit: int) -> list[dict[str, Any]]:
    """A node's roll-ups, at most `limit`, oldest first; of their devices those that are asked for."""
    time = schema.telemetry.c.time
    query = sa.select(*_COLUMNS).where(schema.telemetry.c.node == node).order_by(time).limit(limit)
    if window.since is not None:
        query = query.where(time >= window.since)
    if window.until is not None:
        query = query.where(time < window.until)
    if window.after is not None:
        query = query.where(time > window.after)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    for row in rows:
        row["devices"] = _chosen(row["devices"] or {}, window)
    return rows


def node_is_known(connection: sa.Connection, node: str) -> bool:
    """Whether a node of this name was ever heard of."""
    return connection.scalar(sa.select(sa.literal(1)).where(schema.nodes.c.node == node)) is not None


def _chosen(devices: Mapping[str, Mapping[str, Any]], window: TelemetryWindow) -> dict[str, dict[str, Any]]:
    found = {}
    for device, measures in devices.items():
        if window.device in (None, device):
            kept = {name: values for name, values in measures.items() if window.measure in (None, name)}
            if kept:
                found[device] = kept
    return found

"""The last report of each sidecar: written many at once, read a page at a time.

write_sidecars(connection, [SidecarReport("gpu-017", now, now, "0.1.0", started, False, {...})])
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa

from store.database.known_nodes import is_counted
from store.nodes.shown_nodes import LONGEST_GAP
from store.records.event import to_us
from store.records.node import SidecarState
from store.tables import schema
from store.tables.bulk_rows import insert_into, is_one_of, upsert_last_seen
from store.tables.pages import answer_rows


def silent_nodes(connection: sa.Connection, at: datetime, before: datetime) -> tuple[int, frozenset[str]]:
    """How many nodes in service at a moment have a sidecar, and those of them not heard of since `before`.

    A node without a sidecar is not among them: its events come when something happens. Nor is one that does not count.
    """
    nodes = schema.nodes.c
    joined = schema.sidecars.join(schema.nodes, nodes.node == schema.sidecars.c.node)
    serving = sa.and_(
        sa.or_(nodes.in_service_since.is_(None), nodes.in_service_since <= at),
        sa.or_(nodes.in_service_until.is_(None), nodes.in_service_until > at),
        is_counted(nodes.node),
    )
    expected = connection.scalar(sa.select(sa.func.count()).select_from(joined).where(serving))
    quiet = sa.or_(nodes.last_seen.is_(None), nodes.last_seen < before)
    silent = connection.scalars(sa.select(nodes.node).select_from(joined).where(serving, quiet))
    return int(expected or 0), frozenset(silent)


def heard_since(connection: sa.Connection, nodes: Collection[str], since: datetime, now: datetime) -> frozenset[str]:
    """Of some nodes those whose own heartbeats came without a long gap since a moment, by our clock."""
    if not nodes:
        return frozenset()
    told = (_TABLE.c.unbroken_since <= since, _TABLE.c.received >= now - LONGEST_GAP)
    query = sa.select(_TABLE.c.node).where(*told, is_one_of(connection, _TABLE.c.node, nodes))
    return frozenset(connection.scalars(query))


def clock_readings(connection: sa.Connection, since: datetime, until: datetime) -> list[tuple[str, datetime, datetime]]:
    """Of each sidecar last heard of within a window: the node, that heartbeat's own time, and when it was received."""
    received = _TABLE.c.received
    query = sa.select(_TABLE.c.node, _TABLE.c.time, received).where(received >= since, received <= until)
    return [(row.node, row.time, row.received) for row in connection.execute(query)]


_TABLE = schema.sidecars
# A sidecar that missed this many heartbeats in a row is silent.
SILENT_INTERVALS = 3.0
_MICROS = 1e6


@dataclass(frozen=True, slots=True)
class SidecarReport:
    """One heartbeat; `report` is all that it said, as on the wire."""

    node: str
    received: datetime
    time: datetime  # by the node's own clock
    version: str
    started: datetime
    troubled: bool
    report: dict[str, Any] = field(hash=False)


def write_sidecars(connection: sa.Connection, reports: Sequence[SidecarReport]) -> None:
    """Write each node's report, unless a newer one is there; each node was heard of when it was received."""
    if not reports:
        return
    # By name, as every writer of `nodes` goes: two writers wait for each other, but never in a circle.
    ordered = sorted(reports, key=lambda report: (report.node, report.received))
    if connection.dialect.name == "postgresql":
        _write_document(connection, ordered)
        return
    statement = insert_into(connection, _TABLE)
    new = statement.excluded
    changed = {each.name: new[each.name] for each in fields(SidecarReport) if each.name != "node"}
    # A moment is a number of microseconds there.
    gap = sa.type_coerce(new.received, sa.BigInteger) - sa.type_coerce(_TABLE.c.received, sa.BigInteger)
    kept = sa.func.coalesce(_TABLE.c.unbroken_since, _TABLE.c.received)
    changed["interval_s"] = new.interval_s
    changed["unbroken_since"] = sa.case((gap <= LONGEST_GAP // timedelta(microseconds=1), kept), else_=new.received)
    newer = new.received >= _TABLE.c.received
    rows = [
        {**asdict(report), "unbroken_since": report.received, "interval_s": report.report.get("interval_s")}
        for report in ordered
    ]
    connection.execute(statement.on_conflict_do_update(index_elements=["node"], set_=changed, where=newer), rows)
    upsert_last_seen(connection, {report.node: report.received for report in ordered})


# One statement with one document: a statement a row takes many times as long.
_SIDECARS = sa.text("""
INSERT INTO sidecars (node, received, time, version, started, troubled, report, unbroken_since, interval_s)
SELECT node, received, time, version, started, troubled, report, received,
    CAST(report ->> 'interval_s' AS double precision)
FROM json_to_recordset(CAST(:reports AS json)) AS told(
    node text, received timestamptz, time timestamptz, version text, started timestamptz, troubled boolean, report json)
ON CONFLICT (node) DO UPDATE SET received = excluded.received, time = excluded.time, version = excluded.version,
    started = excluded.started, troubled = excluded.troubled, report = excluded.report,
    interval_s = excluded.interval_s,
    unbroken_since = CASE WHEN excluded.received - sidecars.received <= CAST(:gap AS interval)
        THEN coalesce(sidecars.unbroken_since, sidecars.received) ELSE excluded.received END
WHERE excluded.received >= sidecars.received
""")
_NODES = sa.text("""
INSERT INTO nodes (node, last_seen)
SELECT node, received FROM json_to_recordset(CAST(:reports AS json)) AS told(node text, received timestamptz)
ON CONFLICT (node) DO UPDATE SET last_seen = greatest(nodes.last_seen, excluded.last_seen)
""")


def _write_document(connection: sa.Connection, reports: Sequence[SidecarReport]) -> None:
    gap = f"{LONGEST_GAP.total_seconds():.0f} seconds"
    connection.execute(_SIDECARS, {"reports": orjson.dumps(reports).decode(), "gap": gap})
    seen = [{"node": report.node, "received": report.received} for report in reports]
    connection.execute(_NODES, {"reports": orjson.dumps(seen).decode()})


def sidecar_page(
    connection: sa.Connection, now: datetime, state: SidecarState | None, after: str, limit: int
) -> list[dict[str, Any]]:
    """Sidecars by node beyond `after`, each with its `state` at a moment of the server's clock."""
    table = schema.sidecars
    told = _state(connection, now)
    columns = (column for column in table.c if column.name != "interval_s")  # the report has it
    query = sa.select(*columns, told.label("state")).where(table.c.node > after)
    if state is not None:
        query = query.where(told == state)
    page = query.order_by(table.c.node).limit(limit).subquery()
    return answer_rows(connection, page, page.c.node)


def count_sidecars(connection: sa.Connection, now: datetime) -> dict[str, int]:
    """How many sidecars are `known`, how many of them `silent`, how many of the others `troubled`."""
    told = _state(connection, now).label("state")
    rows = connection.execute(sa.select(told, sa.func.count()).select_from(schema.sidecars).group_by(told))
    found = {str(state): int(count) for state, count in rows}
    return {"known": sum(found.values()), "silent": found.get("silent", 0), "troubled": found.get("troubled", 0)}


def _state(connection: sa.Connection, now: datetime) -> sa.ColumnElement[Any]:
    """The state as SQL: silence first, for what a silent sidecar last said may have changed."""
    table = schema.sidecars
    # A column, for to look into the reports of 12,500 sidecars with eight sources each takes PostgreSQL 0.1 s.
    interval_s = sa.func.coalesce(table.c.interval_s, table.c.report["interval_s"].as_float())
    silent = _age_s(connection, now) > SILENT_INTERVALS * interval_s
    return sa.case((silent, "silent"), (table.c.troubled, "troubled"), else_="ok")


def _age_s(connection: sa.Connection, now: datetime) -> sa.ColumnElement[Any]:
    received = schema.sidecars.c.received
    if connection.dialect.name == "postgresql":
        return sa.extract("epoch", sa.literal(now, schema.UtcTime()) - received)
    return (to_us(now) - sa.type_coerce(received, sa.BigInteger)) / _MICROS

"""Writing roll-ups in bulk: a year of a cluster is millions of rows, too many for one statement a row.

What an archive tells of single devices joins what a sidecar told of the same hour: a measure told of again is replaced.
SQLite takes them through its own executemany, PostgreSQL through COPY into a temporary table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from store.records.event import from_us
from store.records.telemetry import ROLLUP_S, Rollup
from store.tables import schema
from store.tables.bulk_rows import upsert, upsert_last_seen
from store.tables.packed_hours import PackedHours
from store.telemetry.rollups import RollupTable

# Writing roll-ups of live sources: several sources of a node may tell of the same hour, and more of it each time.
#
# merge_rollups(connection, [Rollup(node="gpu-017", time=..., devices={"nic:mlx5_0/1": {...}}, ...)])
#
# A row is a node and hour. A measure of a device that comes again replaces what was there of it; other measures and
# other devices stay. So do columns that the new roll-up leaves empty. `samples` and `gpus_seen` are those of the source
# that sees GPUs. The same roll-up twice changes nothing.

_KEYS = ("node", "time")
_COUNTS = ("samples", "gpus_seen")
_NAMES = tuple(f.name for f in fields(Rollup))
_GAUGES = tuple(name for name in _NAMES if name not in (*_KEYS, *_COUNTS, "devices"))
# Roll-ups of one statement, each of 10 KB or so.
_AT_ONCE = 500


def merge_rollups(connection: sa.Connection, rollups: Sequence[Rollup]) -> None:
    """Write roll-ups in the caller's transaction."""
    if not rollups:
        return
    # In one order, so that two writers of the same rows wait for each other and never in a circle.
    ordered = sorted(rollups, key=lambda rollup: (rollup.node, rollup.time))
    if connection.dialect.name == "postgresql":
        for part in _apart(ordered):
            connection.exec_driver_sql(_MERGE, (orjson.dumps(part).decode(),))
    else:
        connection.execute(_sqlite_merge(), [{name: getattr(one, name) for name in _NAMES} for one in ordered])


def _apart(ordered: Sequence[Rollup]) -> Iterator[list[Rollup]]:
    """The same in parts that hold no node and hour twice: a statement may change a row but once."""
    part: list[Rollup] = []
    for rollup in ordered:
        again = bool(part) and (part[-1].node, part[-1].time) == (rollup.node, rollup.time)
        if again or len(part) == _AT_ONCE:
            yield part
            part = []
        part.append(rollup)
    yield part


def _sqlite_merge() -> Any:
    table = schema.telemetry
    statement = sqlite.insert(table)
    new = statement.excluded
    sees_gpus = sa.or_(new.gpus_seen > 0, table.c.gpus_seen == 0)
    changed: dict[str, Any] = {name: sa.case((sees_gpus, new[name]), else_=table.c[name]) for name in _COUNTS}
    changed |= {name: sa.func.coalesce(new[name], table.c[name]) for name in _GAUGES}
    # Joined down to the measure by itself (RFC 7396).
    joined = sa.func.json_patch(table.c.devices, new.devices)
    changed["devices"] = sa.case(
        (new.devices.is_(sa.null()), table.c.devices), (table.c.devices.is_(sa.null()), new.devices), else_=joined
    )
    return statement.on_conflict_do_update(index_elements=_KEYS, set_=changed)


# Written once, and one document: to build the statement and send values one by one cost more than all of its work.
_COUNT = "CASE WHEN excluded.gpus_seen > 0 OR telemetry.gpus_seen = 0 THEN excluded.{0} ELSE telemetry.{0} END"
JOINED_DEVICES = """CASE WHEN excluded.devices IS NULL THEN telemetry.devices
        WHEN telemetry.devices IS NULL THEN excluded.devices
        ELSE (SELECT json_object_agg(key, CASE WHEN old.value IS NULL THEN new.value
            WHEN new.value IS NULL THEN old.value ELSE old.value || new.value END)
            FROM jsonb_each(telemetry.devices::jsonb) AS old
            FULL JOIN jsonb_each(excluded.devices::jsonb) AS new USING (key)) END"""
_MERGE = f"""
INSERT INTO telemetry ({", ".join(_NAMES)})
SELECT {", ".join(_NAMES)} FROM json_to_recordset(%s::json) AS told(node text, time timestamptz, samples int,
    gpus_seen int, {", ".join(f"{name} float8" for name in _GAUGES)}, devices json)
ORDER BY node COLLATE "C", time
ON CONFLICT (node, time) DO UPDATE SET
    {", ".join(f"{name} = {_COUNT.format(name)}" for name in _COUNTS)},
    {", ".join(f"{name} = coalesce(excluded.{name}, telemetry.{name})" for name in _GAUGES)},
    devices = {JOINED_DEVICES}
"""  # noqa: S608  # our own names


def append_rollups(connection: sa.Connection, rollups: Sequence[Rollup], received: datetime | None = None) -> None:
    """Append telemetry roll-ups; what a later record of the same node and hour tells replaces what was there of it.

    Its node was heard of until the hour's end, or until it was `received` where the hour is not over;
    where nobody says when that was, at the hour's start at the least.
    """
    merge_rollups(connection, rollups)
    now = received or datetime.now(UTC)
    note_late(connection, {one.node for one in rollups if one.time < now - timedelta(hours=LATE_H)}, now)
    newest: dict[str, datetime] = {}
    for rollup in rollups:
        heard = max(rollup.time, min(rollup.time + timedelta(seconds=ROLLUP_S), received or rollup.time))
        newest[rollup.node] = max(heard, newest.get(rollup.node, heard))
    upsert_last_seen(connection, newest)


# Who keeps telemetry between two looks reads the last LATE_H hours again, and all of the nodes that were noted here.
LATE_H = 6


def note_late(connection: sa.Connection, nodes: Iterable[str], received: datetime) -> None:
    """Note nodes of which roll-ups were received long after their hour."""
    upsert(connection, schema.late_telemetry, [{"node": node, "received": received} for node in nodes])


def late_nodes(connection: sa.Connection) -> dict[str, datetime]:
    """The nodes of which roll-ups were received late, and when the last ones were."""
    return {row.node: row.received for row in connection.execute(sa.select(schema.late_telemetry))}


# Reading a node's roll-ups back, with what is told of its devices.

_ANSWER_COLUMNS = tuple(column for column in schema.telemetry.columns if column.name not in ("node", "devices"))


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
    text = sa.cast(schema.telemetry.c.devices, sa.Text).label("devices")
    query = sa.select(*_ANSWER_COLUMNS, text).where(schema.telemetry.c.node == node).order_by(time).limit(limit)
    if window.since is not None:
        query = query.where(time >= window.since)
    if window.until is not None:
        query = query.where(time < window.until)
    if window.after is not None:
        query = query.where(time > window.after)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    hours = PackedHours(connection)
    for row in rows:
        told = hours.devices(row["time"], row["devices"], row.pop("packed"))
        row["devices"] = _chosen((orjson.loads(told) if isinstance(told, str) else told) or {}, window)
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


# Keys, samples, gpus_seen, gauges and, last, devices: rows are made in this order.
_TABLE_COLUMNS = tuple(column.name for column in schema.telemetry.columns if column.name != "packed")
_GAUGE_COLUMNS = tuple(name for name in _TABLE_COLUMNS if name not in (*_KEYS, "samples", "gpus_seen", "devices"))
_REPLACED = tuple(name for name in _TABLE_COLUMNS if name not in (*_KEYS, "devices"))


def insert_rollups(
    connection: sa.Connection, nodes: tuple[str, ...], table: RollupTable, devices: Sequence[str | None] | None = None
) -> int:
    """Write roll-ups; those of the same node and hour are replaced. Returns how many.

    Args:
        nodes: the names that `table.node` indexes.
        devices: JSON of each roll-up's devices, where something is told of them.
    """
    if not len(table.node):
        return 0
    told = devices or [None] * len(table.node)
    if connection.dialect.name == "postgresql":
        _copy(connection, _rows(nodes, table, [from_us(us) for us in table.time_us.tolist()], told))
    else:
        marks = ", ".join("?" * len(_TABLE_COLUMNS))
        statement = f"INSERT INTO telemetry ({', '.join(_TABLE_COLUMNS)}) VALUES ({marks}) {_REPLACE['sqlite']}"  # noqa: S608  # our own names
        connection.exec_driver_sql(statement, list(_rows(nodes, table, table.time_us.tolist(), told)))
    note_late(connection, [nodes[number] for number in set(table.node.tolist())], datetime.now(UTC))
    _note_seen(connection, nodes, table)
    return len(table.node)


_PATCHED = """CASE WHEN excluded.devices IS NULL THEN telemetry.devices
    WHEN telemetry.devices IS NULL THEN excluded.devices
    ELSE json_patch(telemetry.devices, excluded.devices) END"""
# A file of a node's own columns says nothing of its GPUs: what another file said of them stays.
_SEES_GPUS = "excluded.gpus_seen > 0 OR telemetry.gpus_seen = 0"
_SET = ", ".join(
    f"{name} = CASE WHEN {_SEES_GPUS} THEN excluded.{name} ELSE telemetry.{name} END" for name in _REPLACED
)
_REPLACE = {
    dialect: f"ON CONFLICT (node, time) DO UPDATE SET {_SET}, devices = {joined}"
    for dialect, joined in (("sqlite", _PATCHED), ("postgresql", JOINED_DEVICES))
}


def _rows(
    nodes: tuple[str, ...], table: RollupTable, times: list[Any], devices: Sequence[str | None]
) -> Iterator[tuple[Any, ...]]:
    nothing = [None] * len(times)
    gauges = [
        [None if v != v else v for v in table.values[name].tolist()] if name in table.values else nothing
        for name in _GAUGE_COLUMNS
    ]
    names = [nodes[number] for number in table.node.tolist()]
    return zip(names, times, table.samples.tolist(), table.gpus_seen.tolist(), *gauges, devices, strict=True)


def _copy(connection: sa.Connection, rows: Iterator[tuple[Any, ...]]) -> None:
    connection.exec_driver_sql("CREATE TEMPORARY TABLE IF NOT EXISTS rollups_in (LIKE telemetry) ON COMMIT DELETE ROWS")
    connection.exec_driver_sql("TRUNCATE rollups_in")
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY rollups_in ({', '.join(_TABLE_COLUMNS)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    names = ", ".join(_TABLE_COLUMNS)
    replace = _REPLACE["postgresql"]
    connection.exec_driver_sql(f"INSERT INTO telemetry ({names}) SELECT {names} FROM rollups_in {replace}")  # noqa: S608


def _note_seen(connection: sa.Connection, nodes: tuple[str, ...], table: RollupTable) -> None:
    newest: dict[str, int] = {}
    for number, moment in zip(table.node.tolist(), table.time_us.tolist(), strict=True):
        newest[nodes[number]] = max(moment, newest.get(nodes[number], moment))
    upsert_last_seen(connection, {node: from_us(moment) for node, moment in newest.items()})

"""Writing roll-ups in bulk: a year of a cluster is millions of rows, too many for one statement a row.

What an archive tells of single devices joins what a sidecar told of the same hour: a measure told of again is replaced.
SQLite takes them through its own executemany, PostgreSQL through COPY into a temporary table.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from store import schema
from store.append import upsert_last_seen
from store.telemetry_merge import JOINED_DEVICES
from store.telemetry_rollup import RollupTable, moment_of

# Keys, samples, gpus_seen, gauges and, last, devices: rows are made in this order.
_COLUMNS = tuple(column.name for column in schema.telemetry.columns)
_KEYS = ("node", "time")
_GAUGES = tuple(name for name in _COLUMNS if name not in (*_KEYS, "samples", "gpus_seen", "devices"))
_REPLACED = tuple(name for name in _COLUMNS if name not in (*_KEYS, "devices"))


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
        _copy(connection, _rows(nodes, table, [moment_of(us) for us in table.time_us.tolist()], told))
    else:
        marks = ", ".join("?" * len(_COLUMNS))
        statement = f"INSERT INTO telemetry ({', '.join(_COLUMNS)}) VALUES ({marks}) {_REPLACE['sqlite']}"  # noqa: S608  # our own names
        connection.exec_driver_sql(statement, list(_rows(nodes, table, table.time_us.tolist(), told)))
    _note_seen(connection, nodes, table)
    return len(table.node)


_PATCHED = """CASE WHEN excluded.devices IS NULL THEN telemetry.devices
    WHEN telemetry.devices IS NULL THEN excluded.devices
    ELSE json_patch(telemetry.devices, excluded.devices) END"""
_SET = ", ".join(f"{name} = excluded.{name}" for name in _REPLACED)
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
        for name in _GAUGES
    ]
    names = [nodes[number] for number in table.node.tolist()]
    return zip(names, times, table.samples.tolist(), table.gpus_seen.tolist(), *gauges, devices, strict=True)


def _copy(connection: sa.Connection, rows: Iterator[tuple[Any, ...]]) -> None:
    connection.exec_driver_sql("CREATE TEMPORARY TABLE IF NOT EXISTS rollups_in (LIKE telemetry) ON COMMIT DELETE ROWS")
    connection.exec_driver_sql("TRUNCATE rollups_in")
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY rollups_in ({', '.join(_COLUMNS)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    names = ", ".join(_COLUMNS)
    replace = _REPLACE["postgresql"]
    connection.exec_driver_sql(f"INSERT INTO telemetry ({names}) SELECT {names} FROM rollups_in {replace}")  # noqa: S608


def _note_seen(connection: sa.Connection, nodes: tuple[str, ...], table: RollupTable) -> None:
    newest: dict[str, int] = {}
    for number, moment in zip(table.node.tolist(), table.time_us.tolist(), strict=True):
        newest[nodes[number]] = max(moment, newest.get(nodes[number], moment))
    upsert_last_seen(connection, {node: moment_of(moment) for node, moment in newest.items()})

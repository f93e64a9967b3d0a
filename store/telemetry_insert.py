"""Writing roll-ups in bulk: a year of a cluster is millions of rows, too many for one statement a row.

An archive tells nothing of single devices: what a sidecar told of an hour's devices stays.
SQLite takes them through its own executemany, PostgreSQL through COPY into a temporary table.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from store import schema
from store.append import upsert_last_seen
from store.telemetry_rollup import RollupTable, moment_of

_COLUMNS = tuple(column.name for column in schema.telemetry.columns)
_KEYS = ("node", "time")
_VALUES = tuple(name for name in _COLUMNS if name not in (*_KEYS, "samples", "gpus_seen"))
_REPLACED = tuple(name for name in _COLUMNS if name not in (*_KEYS, "devices"))


def insert_rollups(connection: sa.Connection, nodes: tuple[str, ...], table: RollupTable) -> int:
    """Write roll-ups; those of the same node and hour are replaced. Returns how many.

    Args:
        nodes: the names that `table.node` indexes.
    """
    if not len(table.node):
        return 0
    if connection.dialect.name == "postgresql":
        _copy(connection, _rows(nodes, table, [moment_of(us) for us in table.time_us.tolist()]))
    else:
        marks = ", ".join("?" * len(_COLUMNS))
        statement = f"INSERT INTO telemetry ({', '.join(_COLUMNS)}) VALUES ({marks}) {_REPLACE}"  # noqa: S608  # our own names
        connection.exec_driver_sql(statement, list(_rows(nodes, table, table.time_us.tolist())))
    _note_seen(connection, nodes, table)
    return len(table.node)


_REPLACE = f"ON CONFLICT (node, time) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _REPLACED)}"


def _rows(nodes: tuple[str, ...], table: RollupTable, times: list[Any]) -> Iterator[tuple[Any, ...]]:
    nothing = [None] * len(times)
    values = [
        [None if v != v else v for v in table.values[name].tolist()] if name in table.values else nothing
        for name in _VALUES
    ]
    names = [nodes[number] for number in table.node.tolist()]
    return zip(names, times, table.samples.tolist(), table.gpus_seen.tolist(), *values, strict=True)


def _copy(connection: sa.Connection, rows: Iterator[tuple[Any, ...]]) -> None:
    connection.exec_driver_sql("CREATE TEMPORARY TABLE IF NOT EXISTS rollups_in (LIKE telemetry) ON COMMIT DELETE ROWS")
    connection.exec_driver_sql("TRUNCATE rollups_in")
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY rollups_in ({', '.join(_COLUMNS)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    names = ", ".join(_COLUMNS)
    connection.exec_driver_sql(f"INSERT INTO telemetry ({names}) SELECT {names} FROM rollups_in {_REPLACE}")  # noqa: S608


def _note_seen(connection: sa.Connection, nodes: tuple[str, ...], table: RollupTable) -> None:
    newest: dict[str, int] = {}
    for number, moment in zip(table.node.tolist(), table.time_us.tolist(), strict=True):
        newest[nodes[number]] = max(moment, newest.get(nodes[number], moment))
    upsert_last_seen(connection, {node: moment_of(moment) for node, moment in newest.items()})

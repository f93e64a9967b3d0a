"""What a database holds, for `foreshock db status`: sizes, rows, ends, what waits, and who leads."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from store.database.connections import revision_of
from store.database.coordination import lapsed
from store.database.partitions import DIVIDED, partitions
from store.tables import hint_tables, schema


def store_status(connection: sa.Connection) -> dict[str, Any]:
    """`revision`, `bytes`, `tables` (of each `table rows is_estimate bytes partitions oldest newest`),
    `intake` (`batches events set_aside`) and `leases` (`name holder until is_held`).

    Rows of PostgreSQL are what it reckons from its last look (ANALYZE); an exact count would read everything.
    A table's bytes are those of its days and indexes, too; of an SQLite that was built without dbstat, None.
    """
    sizes = _sqlite_sizes(connection)
    intake = schema.intake
    is_set_aside = intake.c.error.is_not(None)
    counts = sa.select(
        sa.func.count().filter(~is_set_aside),
        sa.func.coalesce(sa.func.sum(intake.c["count"]).filter(~is_set_aside), 0),
        sa.func.count().filter(is_set_aside),
    )
    batches, waiting, set_aside = connection.execute(counts).one()
    return {
        "revision": revision_of(connection),
        "bytes": _size(connection),
        "tables": [_table(connection, table, sizes) for table in hint_tables.metadata.sorted_tables],
        "intake": {"batches": batches, "events": int(waiting), "set_aside": set_aside},
        "leases": [
            {"name": row.name, "holder": row.holder, "until": row.until, "is_held": not row.is_lapsed}
            for row in connection.execute(sa.select(schema.leases, lapsed(connection).label("is_lapsed")))
        ],
    }


def _size(connection: sa.Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(sa.text("SELECT pg_database_size(current_database())")) or 0)
    pages, size = (connection.scalar(sa.text(f"PRAGMA {name}")) for name in ("page_count", "page_size"))
    return int(pages or 0) * int(size or 0)


def _sqlite_sizes(connection: sa.Connection) -> Mapping[str, int]:
    """Bytes by table, its indexes among them; SQLite looks at each page for it."""
    if connection.dialect.name == "postgresql":
        return {}
    query = (
        "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
        " WHERE s.aggregate = TRUE GROUP BY m.tbl_name"
    )
    try:
        return {name: int(size) for name, size in connection.execute(sa.text(query))}
    except OperationalError as error:
        if "no such table" not in str(error):
            raise
        return {}


def _table(connection: sa.Connection, table: sa.Table, sizes: Mapping[str, int]) -> dict[str, Any]:
    found = {
        "table": table.name,
        **_extent(connection, table, sizes),
        "partitions": None,
        "oldest": None,
        "newest": None,
    }
    if table.name in DIVIDED:
        column = table.c.time
        ends = [getattr(sa.func, name)(column, type_=schema.UtcTime()) for name in ("min", "max")]
        found["oldest"], found["newest"] = (connection.scalar(sa.select(end)) for end in ends)
        found["partitions"] = len(partitions(connection, table.name)) or None
    return found


def _extent(connection: sa.Connection, table: sa.Table, sizes: Mapping[str, int]) -> dict[str, Any]:
    if connection.dialect.name != "postgresql":
        rows = connection.scalar(sa.select(sa.func.count()).select_from(table))
        return {"rows": rows, "is_estimate": False, "bytes": sizes.get(table.name)}
    query = sa.text(
        "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint, sum(pg_total_relation_size(c.oid))::bigint,"
        " bool_or(c.reltuples < 0 AND pg_relation_size(c.oid) > 0)"
        " FROM pg_partition_tree(to_regclass(:name)) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf"
    )
    rows, size, is_unknown = connection.execute(query, {"name": table.name}).one()
    # Small tables may not have been looked at yet, and are quickly counted.
    if is_unknown or rows == 0:
        rows = connection.scalar(sa.select(sa.func.count()).select_from(table))
        return {"rows": rows, "is_estimate": False, "bytes": size}
    return {"rows": rows, "is_estimate": True, "bytes": size}

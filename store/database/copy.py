"""A whole database into an empty one: from SQLite to PostgreSQL when a site grows, or back, or to another server.

    counts = copy_database(source, target)      # {"events": 120_000, "audit": 3_104, ...}

One reading of the source, one transaction of the target: all of it is there, or nothing. Numbers that were given once
are not given again, and the audit's chain holds as it did. Nothing may write to the source meanwhile: what came later
would be missing.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.database.audit_chain import verify_chain
from store.database.connections import writing
from store.database.coordination import lapsed
from store.database.partitions import DIVIDED, ensure_days
from store.tables import hint_tables, run_tables, schema, topology_tables, verdict_tables  # noqa: F401  # all that metadata knows
from store.tables.bulk_rows import insert_rows

# Leases are of servers that run on the source.
_LEFT = ("leases",)
_ROWS = 5_000
Progress = Callable[[str, int], None]


class CopyRefusedError(ValueError):
    """A copy that is not made; the message says why, and the remedy."""


def copy_database(source: sa.Engine, target: sa.Engine, progress: Progress | None = None) -> dict[str, int]:
    """Copy every row; the numbers of rows by table, once they are the same on both sides.

    Args:
        source, target: both of this program's schema.
        progress: is told the table that is done, and its rows.

    Raises:
        CopyRefusedError: the target holds something, a server works on the source, the audit's chain is broken.
        SQLAlchemyError: a row is refused; nothing was written.
    """
    tables = [table for table in schema.metadata.sorted_tables if table.name not in _LEFT]
    with _snapshot(source) as reading:
        holder = reading.scalar(sa.select(schema.leases.c.holder).where(~lapsed(reading)).limit(1))
        if holder is not None:
            raise CopyRefusedError(f"{holder} works on it: stop every server and consumer, and try again in 5 s")
        for name in DIVIDED:
            ensure_days(target, _days(reading, schema.metadata.tables[name]), [name])
        with writing(target).begin() as connection:
            for table in tables:
                if connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None:
                    raise CopyRefusedError(f"the new database holds rows already ({table.name}): name an empty one")
            counts = {}
            for table in tables:
                counts[table.name] = _copy(reading, connection, table)
                if progress is not None:
                    progress(table.name, counts[table.name])
            _check(connection, counts)
    return counts


def _snapshot(source: sa.Engine) -> sa.Connection:
    """One moment of the source; of SQLite every transaction is."""
    if source.dialect.name != "postgresql":
        return source.connect()
    return source.connect().execution_options(isolation_level="REPEATABLE READ")


def _days(reading: sa.Connection, table: sa.Table) -> Iterator[datetime]:
    """The days from a table's first row to its last: each gets its partition."""
    first, last = reading.execute(sa.select(sa.func.min(table.c.time), sa.func.max(table.c.time))).one()
    if first is None:
        return
    day = first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while day <= last:
        if reading.execute(_between(table, day)).first() is not None:
            yield day
        day += timedelta(days=1)


def _between(table: sa.Table, day: datetime) -> sa.Select[Any]:
    of_day = table.c.time.between(day, day + timedelta(days=1))
    return sa.select(sa.literal(1)).select_from(table).where(of_day).limit(1)


def _copy(reading: sa.Connection, connection: sa.Connection, table: sa.Table) -> int:
    """The rows of one table as they are: JSON to the letter, for the audit's hashes are of it."""
    names = [column.name for column in table.columns]
    columns = [
        sa.cast(column, sa.Text).label(column.name) if isinstance(column.type, sa.JSON) else column
        for column in table.columns
    ]
    count = 0
    with reading.execute(sa.select(*columns).execution_options(yield_per=_ROWS)) as found:
        for rows in found.partitions():
            insert_rows(connection, table, names, [tuple(row) for row in rows])
            count += len(rows)
    number = _last_number(reading, table)
    if number:
        _set_number(connection, table, number)
    return count


def _numbered(table: sa.Table) -> sa.Column[Any] | None:
    column = table.autoincrement_column
    return column if column is not None and column.autoincrement is True else None


def _last_number(reading: sa.Connection, table: sa.Table) -> int:
    """The last number that a table gave; rows of it may be gone."""
    column = _numbered(table)
    if column is None:
        return 0
    stored = reading.scalar(sa.select(sa.func.max(column))) or 0
    if reading.dialect.name == "postgresql":
        name = reading.scalar(sa.select(sa.func.pg_get_serial_sequence(table.name, column.name)))
        given = reading.scalar(sa.text(f"SELECT last_value FROM {name} WHERE is_called"))  # noqa: S608  # our own name
    elif table.dialect_options["sqlite"]["autoincrement"]:
        given = reading.scalar(sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
    else:
        given = 0
    return max(int(stored), int(given or 0))


def _set_number(connection: sa.Connection, table: sa.Table, number: int) -> None:
    """The next number comes after it."""
    column = _numbered(table)
    if connection.dialect.name == "postgresql" and column is not None:
        name = sa.func.pg_get_serial_sequence(table.name, column.name)
        connection.execute(sa.select(sa.func.setval(name, number)))
    elif table.dialect_options["sqlite"]["autoincrement"]:
        row = {"name": table.name, "number": number}
        if not connection.execute(sa.text("UPDATE sqlite_sequence SET seq = :number WHERE name = :name"), row).rowcount:
            connection.execute(sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)"), row)


def _check(connection: sa.Connection, counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        stored = connection.scalar(sa.select(sa.func.count()).select_from(schema.metadata.tables[name]))
        if stored != count:
            raise CopyRefusedError(f"{name}: {count} rows were read and {stored} are there: nothing was kept")
    broken = verify_chain(connection).broken
    if broken is not None:
        raise CopyRefusedError(f"the audit's chain is broken, in the source, too: {broken.why} (`foreshock audit`)")

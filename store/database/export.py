"""Export to Parquet (zstd): a file a table, and a file a day of the tables that grow without end.

    nodes.parquet  incidents.parquet ...  events/day=2025-03-01.parquet  telemetry/day=2025-03-01.parquet ...

Read one with `pandas.read_parquet("FOLDER/events")`: all its days. Columns that hold JSON are JSON text.
Daily, incidents and outages are a file a day, too, of the day on which each began; and what came late is looked for.
Models, ledgers (computed from the rest) and the server's own book-keeping are left out.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import sqlalchemy as sa

from store.database.partitions import DIVIDED
from store.database.retention import MINIMUM
from store.tables import hint_tables, schema, topology_tables, verdict_tables

# The rows of a table as Arrow tables, a bounded number at a time: PostgreSQL's through COPY, SQLite's by a cursor.

# Bytes of CSV, rows of a cursor: what is in memory at a time. No row may be longer than the block.
BLOCK_BYTES = 16 * 1024 * 1024
FETCH_ROWS = 50_000
TimeSpan: TypeAlias = tuple[datetime, datetime]


def arrow_type(kind: sa.types.TypeEngine[Any]) -> Any:
    """A column's type in Parquet."""
    return pa.timestamp("us", tz="UTC") if isinstance(kind, schema.UtcTime) else _raw_type(kind)


def _raw_type(kind: sa.types.TypeEngine[Any]) -> Any:
    """Its type as it is read: moments are microseconds since 1970."""
    for sql, arrow in (
        (schema.UtcTime, pa.int64()),
        (sa.Boolean, pa.bool_()),
        (sa.Float, pa.float64()),
        (sa.Integer, pa.int64()),
    ):
        if isinstance(kind, sql):
            return arrow
    return pa.string()


def read_rows(connection: sa.Connection, table: sa.Table, span: TimeSpan | None) -> Iterator[pa.Table]:
    """The rows of a table, or those of since <= time < until; by time where there is a span, else by the key."""
    read = _read_copy if connection.dialect.name == "postgresql" else _read_cursor
    for rows in read(connection, table, span):
        yield rows.cast(pa.schema([(column.name, arrow_type(column.type)) for column in table.columns]))


def _query(table: sa.Table, span: TimeSpan | None, columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    query = sa.select(*columns)
    if span is None:
        return query.order_by(*table.primary_key)
    moment = _moment(table)
    return query.where(moment >= span[0], moment < span[1]).order_by(moment, *table.primary_key)


def _moment(table: sa.Table) -> sa.Column[Any]:
    """By which a row is one of a day."""
    return table.c.time if "time" in table.c else table.c.start


def _read_cursor(connection: sa.Connection, table: sa.Table, span: TimeSpan | None) -> Iterator[pa.Table]:
    columns = [sa.type_coerce(column, _plain(column.type)).label(column.name) for column in table.columns]
    kinds = pa.schema([(column.name, _raw_type(column.type)) for column in table.columns])
    query = _query(table, span, columns).execution_options(yield_per=FETCH_ROWS)
    with connection.execute(query) as found:
        for rows in found.partitions():
            yield pa.table(
                [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds.types, strict=True)],
                schema=kinds,
            )


def _plain(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """The type whose values come as SQLite keeps them: numbers and texts."""
    if isinstance(kind, schema.UtcTime):
        return sa.BigInteger()
    return sa.Text() if isinstance(kind, sa.JSON) else kind


def _read_copy(connection: sa.Connection, table: sa.Table, span: TimeSpan | None) -> Iterator[pa.Table]:
    columns: list[sa.ColumnElement[Any]] = [
        sa.literal_column(f"(extract(epoch FROM {column.compile(dialect=connection.dialect)}) * 1000000)::bigint")
        if isinstance(column.type, schema.UtcTime)
        else column
        for column in table.columns
    ]
    query = _query(table, span, columns).compile(connection, compile_kwargs={"literal_binds": True})
    convert = pa_csv.ConvertOptions(
        column_types={column.name: _raw_type(column.type) for column in table.columns},
        null_values=[""],  # PostgreSQL writes NULL bare and an empty text in quotes
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )
    reading = pa_csv.ReadOptions(column_names=[column.name for column in table.columns], block_size=BLOCK_BYTES)
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    driver: Any = connection.connection.cursor()
    with driver as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        file = _CopyFile(copy)
        first = file.read(1)
        if not first:
            return
        file.give_back(first)
        for batch in pa_csv.open_csv(pa.PythonFile(file, mode="r"), reading, parsing, convert):
            yield pa.Table.from_batches([batch])


class _CopyFile:
    """What a COPY sends, as a file."""

    def __init__(self, copy: Any) -> None:
        self._copy = copy
        self._rest = b""
        self.closed = False

    def give_back(self, data: bytes) -> None:
        """Read this again."""
        self._rest = data + self._rest

    def read(self, size: int = -1) -> bytes:
        """So many bytes; fewer at the end alone."""
        parts, length = [self._rest], len(self._rest)
        while size < 0 or length < size:
            data = bytes(self._copy.read())
            if not data:
                break
            parts.append(data)
            length += len(data)
        whole = b"".join(parts)
        self._rest = b"" if size < 0 else whole[size:]
        return whole if size < 0 else whole[:size]

    def close(self) -> None:
        """Nothing more is asked for."""
        self.closed = True


EXPORTED = (
    schema.nodes,
    schema.events,
    schema.outages,
    schema.jobs,
    schema.telemetry,
    schema.links,
    topology_tables.former_links,
    topology_tables.device_names,
    topology_tables.node_groups,
    schema.incidents,
    schema.scores,
    schema.link_scores,
    hint_tables.hints,
    schema.audit,
    hint_tables.placements,
    hint_tables.deliveries,
    hint_tables.trips,
    hint_tables.switches,
    hint_tables.policies,
    hint_tables.validations,
    hint_tables.hint_outcomes,
    hint_tables.check_cases,
    verdict_tables.verdicts,
    verdict_tables.verdict_revisions,
    verdict_tables.thread_entries,
    schema.rules,
    schema.sidecars,
    schema.event_days,
    schema.telemetry_days,
)
_DAY = timedelta(days=1)
# When a file's rows were read, in its footer: a day is whole once it was read so long after its end.
_EXPORTED = b"foreshock.exported"
_LATE = timedelta(days=1)
# Of these a day's file is written anew whenever a row of it is another: an outage ends, an incident grows.
DAILY = ("incidents", "outages")


@dataclass(frozen=True, slots=True)
class ExportRange:
    """Days: midnights in UTC, since <= day < until; None is open."""

    since: datetime | None = None
    until: datetime | None = None


def export(
    engine: sa.Engine,
    folder: Path,
    tables: Collection[str] | None = None,
    days: ExportRange | None = None,
    force: bool = False,
    daily: bool = False,
) -> dict[str, int]:
    """Write tables into a folder that is there; returns the rows of each that lie there now.

    A day that an earlier export has written whole is not written again, unless it is to be (`force`);
    neither is one removed that is in the database no more. Other files are replaced.

    Args:
        tables: names of EXPORTED; None for all.
        days: of events, telemetry and scores, and with `daily` of DAILY.
        daily: DAILY are a file a day, too, and a whole day is written again where it holds more rows by now.

    Raises:
        OSError: a file cannot be written; whole files stay, none is left half.
    """
    counts = {}
    for table in EXPORTED:
        name = f"{table.name}"
        if tables is not None and name not in tables:
            continue
        if name in DIVIDED or (daily and name in DAILY):
            counts[name] = _export_days(engine, table, folder / name, (days or ExportRange(), force, daily))
        else:
            counts[name] = _write(engine, table, folder / f"{name}.parquet")
    return counts


def _export_days(engine: sa.Engine, table: sa.Table, folder: Path, how: tuple[ExportRange, bool, bool]) -> int:
    days, force, daily = how
    folder.mkdir(exist_ok=True)
    count = 0
    for day in _days(engine, table, days):
        file = folder / f"day={day:%Y-%m-%d}.parquet"
        there = None if force or table.name in DAILY else _whole(file, table, day)
        if there is not None and daily and _count(engine, table, day) > there:
            there = None
        count += _write(engine, table, file, day) if there is None else there
    return count


def _count(engine: sa.Engine, table: sa.Table, day: datetime) -> int:
    within = (_moment(table) >= day, _moment(table) < day + _DAY)
    with engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table).where(*within)) or 0)


def _days(engine: sa.Engine, table: sa.Table, days: ExportRange) -> Iterator[datetime]:
    """The days that have rows, the oldest first; gaps are passed in one step."""
    since = days.since
    while True:
        moment = _moment(table)
        query = sa.select(sa.func.min(moment, type_=schema.UtcTime()))
        if since is not None:
            query = query.where(moment >= since)
        if days.until is not None:
            query = query.where(moment < days.until)
        with engine.connect() as connection:
            found = connection.scalar(query)
        if found is None:
            return
        day = found.replace(hour=0, minute=0, second=0, microsecond=0)
        yield day
        since = day + _DAY


def _whole(file: Path, table: sa.Table, day: datetime) -> int | None:
    """The rows of a day's file that need not be written again; None where it must be."""
    try:
        footer = pq.ParquetFile(file).metadata
        read = datetime.fromisoformat((footer.metadata or {})[_EXPORTED].decode())
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
    is_current = footer.schema.names == [column.name for column in table.columns]
    return int(footer.num_rows) if is_current and read >= day + _DAY + _LATE else None


def _write(engine: sa.Engine, table: sa.Table, file: Path, day: datetime | None = None) -> int:
    read = datetime.now(UTC).isoformat().encode()
    columns = pa.schema([(column.name, arrow_type(column.type)) for column in table.columns], {_EXPORTED: read})
    # Hidden from who reads the folder meanwhile; two exports at once have one each.
    unfinished = file.with_name(f".{file.stem}.{os.getpid()}.part")
    count = 0
    try:
        with engine.connect() as connection, pq.ParquetWriter(unfinished, columns, compression="zstd") as writer:
            for rows in read_rows(connection, table, None if day is None else (day, day + _DAY)):
                writer.write_table(rows.cast(columns))
                count += rows.num_rows
        if day is None or table.name not in DAILY or not _stands(file, unfinished, day):
            unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _stands(file: Path, fresh: Path, day: datetime) -> bool:
    """Whether a day's file stays as it is: it holds what a fresh one would, or what has been pruned since."""
    try:
        rows, news = pq.read_table(file), pq.read_table(fresh)
    except (OSError, pa.ArrowException):
        return False
    pruned = datetime.now(UTC) - timedelta(days=MINIMUM.incidents_days or 0)
    return bool(rows.equals(news)) or (day < pruned and news.num_rows < rows.num_rows)

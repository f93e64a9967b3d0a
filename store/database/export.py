"""Export to Parquet (zstd): a file a table, and a file a day of the tables that grow without end; to a folder or to S3.

    nodes.parquet  incidents.parquet ...  events/day=2025-03-01.parquet  telemetry/day=2025-03-01.parquet ...

Read one with `pandas.read_parquet("FOLDER/events")`: all its days. Columns that hold JSON are JSON text.
Daily, incidents and outages are a file a day, too, of the day on which each began; and what came late is looked for.
Models, ledgers (computed from the rest) and the server's own book-keeping are left out.
"""

import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import sqlalchemy as sa

from store.database.partitions import DIVIDED
from store.database.retention import MINIMUM
from store.records.event import from_us
from store.tables import hint_tables, schema, topology_tables, verdict_tables
from store.tables.packed_hours import PackedHours

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
        (sa.LargeBinary, pa.binary()),
    ):
        if isinstance(kind, sql):
            return arrow
    return pa.string()


def read_rows(connection: sa.Connection, table: sa.Table, span: TimeSpan | None) -> Iterator[pa.Table]:
    """The rows of a table, or those of since <= time < until; by time where there is a span, else by the key."""
    on_postgres = connection.dialect.name == "postgresql"
    hours = PackedHours(connection)
    if span is not None:
        hours.of_day(span[0])  # a COPY leaves no room for another question
    for rows in (_read_copy if on_postgres else _read_cursor)(connection, table, span):
        whole = _unpacked(rows, hours) if _PACKED in table.c else rows
        yield whole.cast(pa.schema([(column.name, arrow_type(column.type)) for column in exported_columns(table)]))


_PACKED = "packed"


def exported_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """Those that a file has: what the database packs stands in the column that it was packed from."""
    return [column for column in table.columns if column.name != _PACKED]


def _unpacked(rows: pa.Table, hours: PackedHours) -> pa.Table:
    """Roll-ups with the devices that are packed as the JSON that they were."""
    texts = [
        hours.text(from_us(time), text, None if packed is None else _bytes(packed))
        for time, text, packed in zip(*(rows[name].to_pylist() for name in ("time", "devices", _PACKED)), strict=True)
    ]
    place = rows.schema.get_field_index("devices")
    return rows.drop_columns([_PACKED]).set_column(place, "devices", pa.array(texts, pa.string()))


def _bytes(packed: bytes) -> bytes:
    """Of a COPY they come in hexadecimal."""
    return bytes.fromhex(packed[2:].decode()) if packed.startswith(b"\\x") else packed


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


# Where S3's own tools look for another address of it, the first one first.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class ExportPlaceError(ValueError):
    """A place that cannot be written to; the message says how one is named."""


@dataclass(frozen=True, slots=True)
class ExportPlace:
    """A folder of this machine, or a prefix of a bucket; `files` is its file system, `root` the path in it."""

    files: Any
    root: str
    is_local: bool

    @classmethod
    def of(cls, text: str) -> "ExportPlace":
        """A folder, made where it is missing, or `s3://BUCKET/PREFIX` with what AWS's own variables and files tell.

        Raises:
            ExportPlaceError: it is named wrongly.
            OSError: the folder cannot be made.
        """
        if "://" not in text:
            Path(text).mkdir(parents=True, exist_ok=True)
            return cls(pa_fs.LocalFileSystem(), text, True)
        url = urlsplit(text)
        if url.scheme != "s3" or not url.netloc or "@" in url.netloc or url.query or url.fragment:
            raise ExportPlaceError(
                "expected a folder or s3://BUCKET/PREFIX; keys, region and endpoint stand in AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL_S3, or in AWS's own files"
            )
        endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
        files = pa_fs.S3FileSystem(endpoint_override=endpoint, region=os.environ.get("AWS_REGION"))
        return cls(files, f"{url.netloc}/{url.path.strip('/')}".rstrip("/"), False)

    def file(self, name: str) -> str:
        """The path of a file."""
        return f"{self.root}/{name}"

    def make_folder(self, name: str) -> None:
        """Make a folder that is missing, where there are folders."""
        if self.is_local:
            Path(self.root, name).mkdir(exist_ok=True)

    def read(self, path: str) -> pa.Buffer | None:
        """A file's content; None of one that is not there.

        Raises:
            OSError: it cannot be read.
        """
        try:
            with self.files.open_input_file(path) as file:
                return file.read_buffer()
        except FileNotFoundError:
            return None

    @contextmanager
    def unfinished(self, path: str) -> Iterator[Path]:
        """A file of this machine to write first; hidden beside its place in a folder, else where temporary files go."""
        if self.is_local:
            # Hidden from who reads the folder meanwhile; two exports at once have one each.
            file = Path(path).with_name(f".{Path(path).stem}.{os.getpid()}.part")
        else:
            handle, name = tempfile.mkstemp(suffix=".parquet")
            os.close(handle)
            file = Path(name)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)

    def put(self, fresh: Path, path: str) -> None:
        """Move a finished file into its place: nobody ever sees a part of it.

        Raises:
            OSError: it cannot be put there; what was there stays.
        """
        if self.is_local:
            fresh.replace(path)
            return
        # An object is there once its upload is completed, which `close` does; one that broke off leaves none.
        with pa.memory_map(str(fresh)) as content:
            stream = self.files.open_output_stream(path)
            stream.write(content.read_buffer())
            stream.close()


@dataclass(frozen=True, slots=True)
class ExportRange:
    """Days: midnights in UTC, since <= day < until; None is open."""

    since: datetime | None = None
    until: datetime | None = None


def export(
    engine: sa.Engine,
    folder: Path | ExportPlace,
    tables: Collection[str] | None = None,
    days: ExportRange | None = None,
    force: bool = False,
    daily: bool = False,
) -> dict[str, int]:
    """Write tables into a folder that is there, or to S3; returns the rows of each that lie there now.

    A day that an earlier export has written whole is not written again, unless it is to be (`force`);
    neither is one removed that is in the database no more. Other files are replaced.

    Args:
        tables: names of EXPORTED; None for all.
        days: of events, telemetry and scores, and with `daily` of DAILY.
        daily: DAILY are a file a day, too, and a whole day is written again where it holds more rows by now.

    Raises:
        OSError: a file cannot be written; whole files stay, none is left half.
    """
    place = folder if isinstance(folder, ExportPlace) else ExportPlace.of(str(folder))
    counts = {}
    for table in EXPORTED:
        name = f"{table.name}"
        if tables is not None and name not in tables:
            continue
        if name in DIVIDED or (daily and name in DAILY):
            counts[name] = _export_days(engine, table, place, (days or ExportRange(), force, daily))
        else:
            counts[name] = _write(engine, table, place, f"{name}.parquet")
    return counts


def _export_days(engine: sa.Engine, table: sa.Table, place: ExportPlace, how: tuple[ExportRange, bool, bool]) -> int:
    days, force, daily = how
    place.make_folder(table.name)
    count = 0
    for day in _days(engine, table, days):
        file = f"{table.name}/day={day:%Y-%m-%d}.parquet"
        there = None if force or table.name in DAILY else _whole(place, file, table, day)
        if there is not None and daily and _count(engine, table, day) > there:
            there = None
        count += _write(engine, table, place, file, day) if there is None else there
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


def _whole(place: ExportPlace, file: str, table: sa.Table, day: datetime) -> int | None:
    """The rows of a day's file that need not be written again; None where it must be."""
    try:
        footer = pq.read_metadata(place.file(file), filesystem=place.files)
        read = datetime.fromisoformat((footer.metadata or {})[_EXPORTED].decode())
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
    is_current = footer.schema.names == [column.name for column in exported_columns(table)]
    return int(footer.num_rows) if is_current and read >= day + _DAY + _LATE else None


def _write(engine: sa.Engine, table: sa.Table, place: ExportPlace, name: str, day: datetime | None = None) -> int:
    read = datetime.now(UTC).isoformat().encode()
    kinds = [(column.name, arrow_type(column.type)) for column in exported_columns(table)]
    columns = pa.schema(kinds, {_EXPORTED: read})
    file, count = place.file(name), 0
    with place.unfinished(file) as unfinished:
        with engine.connect() as connection, pq.ParquetWriter(unfinished, columns, compression="zstd") as writer:
            for rows in read_rows(connection, table, None if day is None else (day, day + _DAY)):
                writer.write_table(rows.cast(columns))
                count += rows.num_rows
        if day is None or table.name not in DAILY or not _stands(place.read(file), unfinished, day):
            place.put(unfinished, file)
    return count


def _stands(content: pa.Buffer | None, fresh: Path, day: datetime) -> bool:
    """Whether a day's file stays as it is: it holds what a fresh one would, or what has been pruned since."""
    if content is None:
        return False
    try:
        rows, news = pq.read_table(pa.BufferReader(content)), pq.read_table(fresh)
    except (OSError, pa.ArrowException):
        return False
    pruned = datetime.now(UTC) - timedelta(days=MINIMUM.incidents_days or 0)
    return bool(rows.equals(news)) or (day < pruned and news.num_rows < rows.num_rows)

"""Export to Parquet (zstd): a file a table, and a file a day of the tables that grow without end.

    nodes.parquet  incidents.parquet ...  events/day=2025-03-01.parquet  telemetry/day=2025-03-01.parquet ...

Read one with `pandas.read_parquet("FOLDER/events")`: all its days. Columns that hold JSON are JSON text.
Models, ledgers (computed from the rest) and the server's own book-keeping are left out.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from store import schema
from store.export_rows import arrow_type, read_rows
from store.partitions import DIVIDED

EXPORTED = (
    schema.nodes,
    schema.events,
    schema.outages,
    schema.jobs,
    schema.telemetry,
    schema.links,
    schema.incidents,
    schema.scores,
    schema.link_scores,
    schema.hints,
    schema.audit,
    schema.placements,
    schema.deliveries,
    schema.trips,
    schema.switches,
    schema.policies,
    schema.validations,
    schema.hint_outcomes,
    schema.rules,
    schema.sidecars,
    schema.event_days,
    schema.telemetry_days,
)
_DAY = timedelta(days=1)
# When a file's rows were read, in its footer: a day is whole once it was read so long after its end.
_EXPORTED = b"foreshock.exported"
_LATE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Range:
    """Days: midnights in UTC, since <= day < until; None is open."""

    since: datetime | None = None
    until: datetime | None = None


def export(
    engine: sa.Engine,
    folder: Path,
    tables: Collection[str] | None = None,
    days: Range | None = None,
    force: bool = False,
) -> dict[str, int]:
    """Write tables into a folder that is there; returns the rows of each that lie there now.

    A day that an earlier export has written whole is not written again, unless it is to be (`force`);
    neither is one removed that is in the database no more. Other files are replaced.

    Args:
        tables: names of EXPORTED; None for all.
        days: of events, telemetry and scores.

    Raises:
        OSError: a file cannot be written; whole files stay, none is left half.
    """
    counts = {}
    for table in EXPORTED:
        name = f"{table.name}"
        if tables is not None and name not in tables:
            continue
        if name in DIVIDED:
            counts[name] = _export_days(engine, table, folder / name, (days or Range(), force))
        else:
            counts[name] = _write(engine, table, folder / f"{name}.parquet")
    return counts


def _export_days(engine: sa.Engine, table: sa.Table, folder: Path, how: tuple[Range, bool]) -> int:
    days, force = how
    folder.mkdir(exist_ok=True)
    count = 0
    for day in _days(engine, table, days):
        file = folder / f"day={day:%Y-%m-%d}.parquet"
        there = None if force else _whole(file, table, day)
        count += _write(engine, table, file, day) if there is None else there
    return count


def _days(engine: sa.Engine, table: sa.Table, days: Range) -> Iterator[datetime]:
    """The days that have rows, the oldest first; gaps are passed in one step."""
    since = days.since
    while True:
        query = sa.select(sa.func.min(table.c.time, type_=schema.UtcTime()))
        if since is not None:
            query = query.where(table.c.time >= since)
        if days.until is not None:
            query = query.where(table.c.time < days.until)
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
    unfinished = file.with_suffix(".part")
    count = 0
    try:
        with engine.connect() as connection, pq.ParquetWriter(unfinished, columns, compression="zstd") as writer:
            for rows in read_rows(connection, table, None if day is None else (day, day + _DAY)):
                writer.write_table(rows.cast(columns))
                count += rows.num_rows
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return count

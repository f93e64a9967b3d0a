"""A large fleet's year in PostgreSQL, by COPY: 12,500 nodes, about eight million events. Made once a folder.

python -m benchmarks.fleet_year /var/tmp/year      # fills it, and says how large it became

with fleet_year(folder) as url: ...                # the server runs as long as the block
"""

import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import sqlalchemy as sa

from api.loops.ledgers import LedgerTurns
from benchmarks.fleet_losses import loss_rows
from benchmarks.fleet_places import place_rows, small_rows
from benchmarks.fleet_rows import Size, flood, score_rows, strikes, telemetry_rows
from benchmarks.fleet_runs import runs
from store.database.closed_days import compact_days
from store.database.connections import migrate, open_database
from store.database.partitions import ensure_days
from store.tables import hint_tables
from store.telemetry.packing import CLOSED_FOR

_UNFILLED = ("seq", "heads", "position", "hash", "unbroken_since")  # the database numbers them, or a server does
# This fleet has no NVLink domains, no gauge that shows an old fault, and tells of no single devices.
_UNTOLD = {"incidents": ("link", "domain", "nodes", "parts", "shown"), "telemetry": ("packed",)}
# As docs/store.md advises: a year's tables and indexes are 4,000 files or more.
_SETTINGS = {"shared_buffers": "2GB", "effective_cache_size": "8GB", "max_files_per_process": "8000"}
_DAYS_AT_ONCE = 20  # a transaction holds a lock on every partition and index that it makes


def fill(url: str, size: Size, workers: int = 2) -> None:
    """Fill an empty database: the schema, the days, the rows, their statistics."""
    engine = open_database(url)
    migrate(engine)
    days = [size.day(back).date() for back in range(-1, size.days)]
    for first in range(0, len(days), _DAYS_AT_ONCE):
        ensure_days(engine, days[first : first + _DAYS_AT_ONCE])
    dsn = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(partial(_fill_day, dsn, size), range(size.days - 1, -1, -1)))
    with psycopg.connect(dsn) as connection:
        for jobs, lines in runs(size):
            copy_in(connection, "jobs", [jobs])
            copy_in(connection, "events", [lines])
        events, incidents = flood(size)
        copy_in(connection, "events", [events])
        copy_in(connection, "incidents", [incidents])
        for table, rows in [*place_rows(size), *small_rows(size), *loss_rows(size)]:
            copy_in(connection, table, [rows])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as after:
        after.execute(sa.text("VACUUM ANALYZE"))
    # As a server has done by then, a day after the other.
    compact_days(engine, ("events", "telemetry"), size.end - CLOSED_FOR)
    turns = LedgerTurns(engine, lambda: size.end)
    for _ in range(size.runs + 1):  # a turn computes what fits into its time
        turns.turn(lambda: True)
    engine.dispose()


def _fill_day(dsn: str, size: Size, back: int) -> None:
    """One day of events, incidents, telemetry and scores."""
    events, incidents = strikes(size, back)
    with psycopg.connect(dsn) as connection:
        copy_in(connection, "events", [events])
        copy_in(connection, "incidents", [incidents])
        hours = back < size.hour_days
        copy_in(connection, "telemetry" if hours else "telemetry_days", telemetry_rows(size, back, not hours))
        copy_in(connection, "scores", score_rows(size, back))


def copy_in(connection: "psycopg.Connection[tuple[object, ...]]", table: str, blocks: Iterable[bytes]) -> None:
    """COPY text into all columns of a table that are not numbered by the database."""
    unfilled = (*_UNFILLED, *_UNTOLD.get(table, ()))
    columns = [
        f'"{column.name}"' for column in hint_tables.metadata.tables[table].columns if column.name not in unfilled
    ]
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for block in blocks:
            copy.write(block)


@contextmanager
def fleet_year(folder: Path, size: Size | None = None) -> Iterator[str]:
    """The URL of the filled database in `folder`, which is made and filled where it is not yet.

    The present of the store stands still: a folder of yesterday is a fleet whose newest records are a day old.
    """
    from real.postgres import postgres  # the starters stand with the tests, on the path by now

    done = folder / "filled"
    with postgres(folder=folder, settings=_SETTINGS) as server:
        url = server.url("year")
        if not done.exists():
            server.create("year")
            fill(url, size or Size(datetime.now(UTC).replace(second=0, microsecond=0)))
            done.touch()
        yield url


def main() -> int:
    """Fill a folder."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    began = time.monotonic()
    with fleet_year(Path(sys.argv[1])) as url, sa.create_engine(url).connect() as connection:
        took = time.monotonic() - began
        held = connection.scalar(sa.text("SELECT pg_size_pretty(pg_database_size('year'))"))
        print(f"{took:.0f} s, {held}")
        for table in hint_tables.metadata.sorted_tables:
            print(table.name, connection.scalar(sa.select(sa.func.count()).select_from(table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

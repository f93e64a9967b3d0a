"""The ledgers of a thousand runs over a month: from nothing, with nothing new, after new lines, after a late one.

`python -m benchmarks ledger` measures it. `FORESHOCK_BENCH_MONTH=DIR` keeps the filled database between two calls.
`LEDGER_RUNS=100` makes it smaller. The public program is PostgreSQL itself: psql groups all lines by run and kind, and
sums what they took, which is the least that anybody has to do who counts from the log.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import sqlalchemy as sa
from real.postgres import Postgres, postgres

from benchmarks.fleet_places import place_rows, small_rows
from benchmarks.fleet_rows import Size, strikes
from benchmarks.fleet_year import copy_in
from benchmarks.ledger_rows import plan, rows
from benchmarks.processor import program_s, sessions_s
from benchmarks.result import Result
from goodput.stored.refresh import read_all, refresh
from store.database.connections import migrate, open_database, writing
from store.database.partitions import ensure_days
from store.events.append import append_events
from store.records.event import Attribute, Event
from store.tables import schema

WHAT = "ledgers of 1,000 runs x 30 days over 12,500 nodes"
BUDGET = "< 5 s on PostgreSQL, incremental as lines arrive"
BUDGET_S = 5.0
KEPT, RUNS = "FORESHOCK_BENCH_MONTH", "LEDGER_RUNS"
NEW_LINES, NEW_RUNS = 5_000, 200
_COUNT = (
    "SELECT run, kind, count(*), sum((attributes->>'elapsed_ms')::float), max(time) FROM events"
    " WHERE source = 'training' GROUP BY run, kind"
)


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds on the clock, and of processors: ours with its children, and the database's."""

    wall_s: float
    own_s: float
    database_s: float

    def told(self) -> str:
        """For a table."""
        return f"{self.wall_s:.2f} s (processor {self.own_s:.2f} + {self.database_s:.2f})"


def measure(folder: Path) -> Iterator[Result]:
    """Each case once, in turn; reading all ledgers is part of each."""
    folder.parent.chmod(0o755)  # the database runs as another user
    kept = Path(os.environ.get(KEPT, folder.parent / "month"))
    runs = int(os.environ.get(RUNS, "1000"))
    size = Size(datetime.now(UTC).replace(second=0, microsecond=0), days=30, runs=runs)
    with _filled(kept, size) as (url, postmaster, psql):
        engine = open_database(url)
        with engine.connect() as connection:
            lines = connection.scalar(
                sa.select(sa.func.count()).select_from(schema.events).where(schema.events.c.source == "training")
            )
        told = f"{runs} runs, {lines:,} lines"

        def now() -> datetime:
            return datetime.now(UTC)

        def all_ledgers() -> None:
            assert len(list(read_all(engine, refresh(engine, now())))) >= runs

        group = _took(postmaster, lambda: _psql(psql, url))
        cold = _took(postmaster, all_ledgers)
        yield _result(f"{WHAT}: from nothing", cold, group, f"{told}; the other: psql groups the lines", "-")
        nothing = _took(postmaster, all_ledgers)
        yield _result(f"{WHAT}: nothing new", nothing, group, told, BUDGET)
        _append(engine, size)
        lines_in = _took(postmaster, all_ledgers)
        yield _result(f"{WHAT}: {NEW_LINES:,} new lines in {NEW_RUNS} runs", lines_in, group, told, BUDGET)
        _append_late(engine, size)
        late = _took(postmaster, all_ledgers)
        yield _result(f"{WHAT}: a line a week late in the longest run", late, group, told, BUDGET)
        engine.dispose()


def _result(what: str, ours: Took, theirs: Took, note: str, budget: str) -> Result:
    verdict = "met" if budget == "-" or ours.wall_s < BUDGET_S else "not met"
    return Result(
        what,
        budget,
        ours.told(),
        theirs.told(),
        ours.wall_s / theirs.wall_s,
        "met" if verdict == "met" else "not met",
        f"{note}; load average {os.getloadavg()[0]:.1f}",
    )


def _took(postmaster: int, work: Callable[[], object]) -> Took:
    own, database, began = _own_s(), _database_s(postmaster), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    return Took(wall, _own_s() - own, _database_s(postmaster) - database)


def _own_s() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _database_s(postmaster: int) -> float:
    """What its sessions have spent: those there are, and those that ended."""
    fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return ended + program_s(postmaster) + sum(sessions_s(postmaster).values())


def _psql(program: Path, url: str) -> None:
    found = sa.make_url(url)
    command: list[str | Path] = [
        program,
        "-h",
        str(found.query["host"]),
        "-U",
        "postgres",
        "-qAt",
        "-c",
        _COUNT,
        str(found.database),
    ]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _filled(folder: Path, size: Size) -> Iterator[tuple[str, int, Path]]:
    """The URL of a filled database without any ledger, its first process, and its psql."""
    done = folder / "filled"
    with postgres(folder=folder, settings={"shared_buffers": "1GB", "effective_cache_size": "4GB"}) as server:
        url = server.url("month")
        if not done.exists():
            began = time.monotonic()
            _fill(server, url, size)
            done.touch()
            print(f"filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
        else:
            done_at = datetime.fromtimestamp(done.stat().st_mtime, UTC)
            with psycopg.connect(server.dsn("month"), autocommit=True) as connection:
                connection.execute("TRUNCATE ledgers, folded_logs, log_news, interruptions, run_days, cluster_days")
                # What the last time appended: the same line numbers again would be a log that was written anew.
                connection.execute("DELETE FROM events WHERE source = 'training' AND received > %s", (done_at,))
        yield url, int((folder / "data/postmaster.pid").read_text().split()[0]), server.bin / "psql"


def _fill(server: Postgres, url: str, size: Size) -> None:
    server.create("month")
    engine = open_database(url)
    migrate(engine)
    days = [size.day(back).date() for back in range(-1, size.days + 1)]
    for first in range(0, len(days), 20):
        ensure_days(engine, days[first : first + 20])
    with psycopg.connect(server.dsn("month")) as connection:
        for table, text in [*place_rows(size), *small_rows(size)]:
            copy_in(connection, table, [text])
        for run in plan(size):
            for table, text in rows(run):
                copy_in(connection, table, [text])
        for back in range(size.days):
            copy_in(connection, "events", [strikes(size, back)[0]])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as after:
        after.execute(sa.text("VACUUM ANALYZE"))
    engine.dispose()


def _append(engine: sa.Engine, size: Size) -> None:
    """Lines of runs that work still, as they come in; not timed."""
    open_runs = [run for run in plan(size) if run.is_open]
    chosen = open_runs[:NEW_RUNS]
    each = NEW_LINES // max(1, len(chosen))
    for run in chosen:
        lines = [_new_line(run.name, 10_000_000 + number, size.end, number) for number in range(1, each + 1)]
        with writing(engine).begin() as connection:
            append_events(connection, lines, datetime.now(UTC))


def _append_late(engine: sa.Engine, size: Size) -> None:
    """One evaluation of a week ago."""
    longest = max(plan(size), key=lambda run: run.end_us - run.begin_us)
    line = _new_line(longest.name, 1, size.end - timedelta(days=7), 0, "evaluation")
    with writing(engine).begin() as connection:
        append_events(connection, [line], datetime.now(UTC))


def _new_line(run: str, number: int, after: datetime, step: int, kind: str = "iteration") -> Event:
    told: dict[str, Attribute] = {
        "run": run,
        "iteration": 10_000_000 + step * 10,
        "iterations": 10,
        "elapsed_ms": 3000.0,
    }
    if kind != "iteration":
        told = {"run": run, "duration_ms": 9_000.0}
    moment = after + timedelta(seconds=30 * step)
    return Event(moment, "gpu-00000", "training", kind, attributes=told, file=f"{run}.log", line=number)

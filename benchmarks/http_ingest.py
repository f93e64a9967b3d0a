"""Events through HTTP into the database, against the database's own bulk load of the same rows, both with fsync.

PostgreSQL: `foreshock serve --processes 2`, as docs/large-sites.md has it for a host of two cores, and 16 senders, as
a cluster has many, against one COPY into a plain table `LIKE events INCLUDING ALL`:
the same columns and indexes, but no partitions to find for each row, which makes it the harder one to come near.
SQLite: as many senders, against sqlite3's executemany into a table of the same schema in a file of its own, with the
same pragmas and as many rows a commit.
Processor time is told beside the rates: other work on the machine disturbs it less.
The events are a fleet in trouble: each of 400 nodes repeats a fault every eight seconds, so that all of them go through
the intake into 400 incidents while the requests are answered.
"""

import gzip
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import psycopg
import sqlalchemy as sa
from real.fleet import children, cpu_s
from real.foreshock import Running, serve
from real.postgres import postgres

from benchmarks.result import Result, seconds
from store.records.event import Device, Event, to_wire, with_id

WHAT = "ingest through HTTP into PostgreSQL"
BUDGET = ">= 0.5 x raw COPY of the same rows"
WHAT_SQLITE = "ingest through HTTP into SQLite"
BUDGET_SQLITE = ">= 0.5 x sqlite3 executemany of the same rows"
EVENTS, BATCH, SENDERS = 80_000, 2_000, 16
PROCESSES = 2  # of the server, on PostgreSQL
RUNS = 3
_START = datetime(2025, 3, 1, tzinfo=UTC)


def measure(folder: Path) -> Iterator[Result]:
    """Batches of 2,000 events, gzip; then the rows that this gave, loaded into an empty twin."""
    yield _median(folder, _on_postgres)
    yield _median(folder, _on_sqlite)


def _median(folder: Path, measured: Callable[[Path], Result]) -> Result:
    """The run of the median ratio: single runs differ by a tenth."""
    found = []
    for number in range(RUNS):
        own = folder / f"{measured.__name__}{number}"
        own.mkdir()
        found.append(measured(own))
    found.sort(key=lambda result: result.ratio or 0.0)
    ratios = ", ".join(f"{result.ratio:.2f}" for result in found)
    middle = found[RUNS // 2]
    return replace(middle, note=f"{middle.note}; the median of {RUNS} runs: {ratios}")


def _on_postgres(folder: Path) -> Result:
    batches = _batches()
    with postgres(fsync=True) as database:
        url = database.new_database()
        postmaster = int((database.folder / "data" / "postmaster.pid").read_text().split()[0])
        with serve(url, folder, "--processes", str(PROCESSES)) as server:
            _send(server, batches[:1], 1)  # makes the day's table
            _send(server, batches[:1] * 4 * PROCESSES, SENDERS)  # known by now; fills every process's pool
            before = _cpu_us(server.pid), _cpu_us(postmaster)
            ours = seconds(lambda: _send(server, batches[1:], SENDERS))
            api_us, postgresql_us = _cpu_us(server.pid) - before[0], _cpu_us(postmaster) - before[1]
        with psycopg.connect(database.dsn(sa.make_url(url).database or ""), autocommit=True) as connection:
            held = connection.execute("SELECT count(*) FROM events").fetchone()
            if held != (EVENTS,):
                raise RuntimeError(f"{held} of {EVENTS} events arrived")
            rows = _copied_out(connection)
            connection.execute("CREATE TABLE twin (LIKE events INCLUDING ALL)")
            before_us = _cpu_us(postmaster)
            theirs = seconds(lambda: _copy_in(connection, rows))
            copy_us = _cpu_us(postmaster) - before_us
    sent = EVENTS - BATCH
    processors = f"API {api_us / sent:.1f} and PostgreSQL {postgresql_us / sent:.1f} us of processor a row"
    note = f"{PROCESSES} server processes, {SENDERS} senders, {processors}, COPY {copy_us / EVENTS:.1f}"
    return _result((WHAT, BUDGET), ours * EVENTS / sent, theirs, note)


def _cpu_us(pid: int) -> float:
    """Processor time of a program and of those it started."""
    return 1e6 * sum(cpu_s(each) for each in (pid, *children(pid)))


def _on_sqlite(folder: Path) -> Result:
    batches = _batches()
    path, twin = folder / "x.db", folder / "twin.db"
    with serve(f"sqlite:///{path}", folder) as server:
        _send(server, batches[:1], 1)
        ours = seconds(lambda: _send(server, batches[1:], SENDERS))
    with sqlite3.connect(path) as source:
        rows = source.execute("SELECT * FROM events").fetchall()
        made = "SELECT sql FROM sqlite_master WHERE tbl_name = 'events' AND sql IS NOT NULL"
        schema = source.execute(made).fetchall()
    if len(rows) != EVENTS:
        raise RuntimeError(f"{len(rows)} of {EVENTS} events arrived")
    source.close()
    theirs = seconds(lambda: _insert(twin, [text for (text,) in schema], rows))
    return _result((WHAT_SQLITE, BUDGET_SQLITE), ours * EVENTS / (EVENTS - BATCH), theirs, f"{SENDERS} senders")


def _result(named: tuple[str, str], ours: float, theirs: float, senders: str) -> Result:
    ratio = theirs / ours
    return Result(
        *named,
        f"{EVENTS / ours:.0f} rows/s",
        f"{EVENTS / theirs:.0f} rows/s",
        ratio,
        "met" if ratio >= 0.5 else "not met",
        f"{EVENTS} events, all faults of 400 incidents, {senders}, batches of {BATCH}; ratio of the rates",
    )


def _batches() -> list[bytes]:
    events = [
        Event(
            _START + timedelta(milliseconds=20 * number),
            f"gpu-{number % 400:03d}",
            "kernel",
            "xid",
            31,
            "warning",
            "application",
            "restart_app",
            Device("gpu", f"0000:{number % 8 + 1:02x}:00.0"),
            "MMU Fault",
            {"pid": number, "process": "python"},
        )
        for number in range(EVENTS)
    ]
    lines = [orjson.dumps(to_wire(with_id(event))) for event in events]
    return [gzip.compress(b"\n".join(lines[start : start + BATCH]), 1) for start in range(0, EVENTS, BATCH)]


def _send(server: Running, batches: list[bytes], senders: int) -> None:
    def send(batch: bytes) -> None:
        server.post("/api/v1/events", batch, headers={"Content-Encoding": "gzip"})

    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(send, batches))


def _copied_out(connection: "psycopg.Connection[tuple[object, ...]]") -> list[bytes]:
    with connection.cursor() as cursor, cursor.copy("COPY (TABLE events) TO STDOUT (FORMAT BINARY)") as copy:
        whole = b"".join(bytes(part) for part in copy)
    return [whole[start : start + 2**18] for start in range(0, len(whole), 2**18)]


def _copy_in(connection: "psycopg.Connection[tuple[object, ...]]", rows: list[bytes]) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY twin FROM STDIN (FORMAT BINARY)") as copy:
        for part in rows:
            copy.write(part)


def _insert(path: Path, schema: list[str], rows: list[tuple[object, ...]]) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    for statement in schema:
        connection.execute(statement)
    marks = ", ".join("?" * len(rows[0]))
    for start in range(0, len(rows), BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO events VALUES ({marks})", rows[start : start + BATCH])  # noqa: S608
        connection.execute("COMMIT")
    connection.close()

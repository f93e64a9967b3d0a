"""Events through HTTP into PostgreSQL, against a raw COPY of the same rows into a table like it, both with fsync."""

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import psycopg
import sqlalchemy as sa
from real.foreshock import Running, serve
from real.postgres import postgres

from benchmarks.result import Result, seconds
from store.event import Device, Event, to_wire, with_id

WHAT = "ingest through HTTP into PostgreSQL"
BUDGET = ">= 0.5 x raw COPY of the same rows"
EVENTS, BATCH = 40_000, 2_000
_START = datetime(2025, 3, 1, tzinfo=UTC)


def measure(folder: Path) -> Result:
    """One sender, batches of 2,000 events, gzip; then the rows that this gave, copied into an empty twin."""
    batches = _batches()
    with postgres(fsync=True) as database:
        url = database.new_database()
        with serve(url, folder) as server:
            ours = seconds(lambda: _send(server, batches))
        with psycopg.connect(database.dsn(sa.make_url(url).database or ""), autocommit=True) as connection:
            held = connection.execute("SELECT count(*) FROM events").fetchone()
            if held != (EVENTS,):
                raise RuntimeError(f"{held} of {EVENTS} events arrived")
            rows = _copied_out(connection)
            connection.execute("CREATE TABLE twin (LIKE events INCLUDING ALL)")
            theirs = seconds(lambda: _copy_in(connection, rows))
    ratio = theirs / ours
    return Result(
        WHAT,
        BUDGET,
        f"{EVENTS / ours:.0f} rows/s",
        f"{EVENTS / theirs:.0f} rows/s",
        ratio,
        "met" if ratio >= 0.5 else "not met",
        f"{EVENTS} events, one sender, batches of {BATCH}; ratio of the rates",
    )


def _batches() -> list[bytes]:
    events = [
        Event(
            _START + timedelta(seconds=number),
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


def _send(server: Running, batches: list[bytes]) -> None:
    for batch in batches:
        server.post("/api/v1/events", batch, headers={"Content-Encoding": "gzip"})


def _copied_out(connection: "psycopg.Connection[tuple[object, ...]]") -> list[bytes]:
    with connection.cursor() as cursor, cursor.copy("COPY events TO STDOUT (FORMAT BINARY)") as copy:
        return [bytes(part) for part in copy]


def _copy_in(connection: "psycopg.Connection[tuple[object, ...]]", rows: list[bytes]) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY twin FROM STDIN (FORMAT BINARY)") as copy:
        for part in rows:
            copy.write(part)

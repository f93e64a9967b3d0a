"""How much room an event and a node-hour of telemetry take in PostgreSQL: on the day they come, and once it is closed.

Events are those of simulated sidecars (`load_bodies.py`: every Xid of the catalogue on eight GPUs, flaps of links), of
12,500 nodes over a day, each with an id, a time and a process of its own, as the API takes them in. Node-hours are
those of the real tapes of fixtures/real/gwdg (four GPUs, fabric, host, BMC), each as a node-hour of one day's fleet,
written every five minutes of its hour as a sidecar does. The other program is zstd: the same rows as JSON lines, all of
a day in one stream, which nobody can look anything up in.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
import zstandard
from real.postgres import postgres
from real.tapes import TAPES

from benchmarks.load_bodies import Bodies
from benchmarks.result import Result
from store.database.closed_days import compact_days
from store.database.connections import migrate, open_database, transact
from store.database.partitions import ensure_days, name_of
from store.events.append import append_events
from store.events.event_json import decode_events
from store.records.event import to_wire
from store.records.telemetry import Rollup
from store.tables import schema
from store.telemetry.hours import append_rollups
from store.telemetry.packing import CLOSED_FOR, pack_closed_days

WHAT, BUDGET = "room of a stored event", "<= 250 bytes"
HOURS_WHAT, HOURS_BUDGET = "room of a node-hour of telemetry", "<= 600 bytes"
EVENTS, BATCH, NODES = 200_000, 500, 12_500
WRITTEN = 12  # times an hour
_DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=7)
_CLOSED = _DAY + timedelta(days=1) + CLOSED_FOR


def measure(folder: Path) -> Iterator[Result]:
    """Bytes a row of the day's table with its indexes; what it is made of goes to standard error."""
    with postgres() as server:
        engine = open_database(server.new_database())
        migrate(engine)
        ensure_days(engine, [_DAY], ("events", "telemetry"))
        lines = _take_events(engine)
        fresh = _room(engine, "events")
        compact_days(engine, ["events"], _CLOSED)
        yield _result((WHAT, BUDGET, 250), fresh, _room(engine, "events"), _streamed(lines))
        rollups = _tape_hours(folder)
        for _ in range(WRITTEN):
            transact(engine, lambda connection: append_rollups(connection, rollups, _DAY))
        fresh = _room(engine, "telemetry")
        pack_closed_days(engine, _CLOSED)
        compact_days(engine, ["telemetry"], _CLOSED)
        texts = [orjson.dumps(rollup) for rollup in rollups]
        yield _result((HOURS_WHAT, HOURS_BUDGET, 600), fresh, _room(engine, "telemetry"), _streamed(texts))
        engine.dispose()


def _take_events(engine: sa.Engine) -> list[bytes]:
    """A day's events, in the order of their times, as the API takes them; returns them as lines of JSON."""
    bodies, lines = Bodies(1), []
    for first in range(0, EVENTS, BATCH):
        moments = [_DAY + timedelta(days=1) / EVENTS * number for number in range(first, first + BATCH)]
        nodes = [f"gpu-{number * 7919 % NODES:05d}" for number in range(first, first + BATCH)]
        body = b",".join(bodies.events(*pair)[1:-1] for pair in zip(nodes, ([one] for one in moments), strict=True))
        events = decode_events(b"[" + body + b"]") or []
        transact(engine, lambda connection, events=events, end=moments[-1]: append_events(connection, events, end))
        lines += [orjson.dumps(to_wire(event)) for event in events]
    return lines


def _tape_hours(folder: Path) -> list[Rollup]:
    """The hours of the real tapes, each day of each as a node's day."""
    table, found, days = schema.telemetry, list[Rollup](), dict[tuple[int, date], int]()
    for number, tape in enumerate(sorted(TAPES.iterdir())):
        engine = open_database(f"sqlite:///{folder}/{number}.db")
        command = [sys.executable, "-m", "foreshock", "ingest", str(tape), "--db", str(engine.url)]
        subprocess.run(command, check=True, capture_output=True)
        with engine.connect() as connection:
            columns = [column for column in table.columns if column.name != "packed"]
            for row in connection.execute(sa.select(*columns).where(table.c.devices.is_not(None))).mappings():
                name = f"gpu-{days.setdefault((number, row['time'].date()), len(days)):05d}"
                found.append(Rollup(**{**row, "node": name, "time": _DAY + timedelta(hours=row["time"].hour)}))
        engine.dispose()
    return found


def _streamed(lines: Sequence[bytes]) -> float:
    """Bytes a row of one zstd stream of all."""
    return len(zstandard.ZstdCompressor(level=3).compress(b"\n".join(lines))) / len(lines)


def _room(engine: sa.Engine, table: str) -> Mapping[str, float]:
    """Bytes a row of a day's table: `all`, `table` (TOAST too), each index; and of each row's columns."""
    name = name_of(table, _DAY.date())
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"VACUUM ANALYZE {name}"))
        rows = connection.scalar(sa.text(f"SELECT count(*) FROM {name}"))  # noqa: S608  # a name of ours
        sizes = [("all", f"pg_total_relation_size('{name}')"), ("table", f"pg_table_size('{name}')")]
        room = {part: connection.scalar(sa.text(f"SELECT {size}")) for part, size in sizes}
        room |= dict(connection.execute(_INDEXES, {"name": name}).all())  # type: ignore[arg-type]  # rows are pairs
        room = {part: int(size) / rows for part, size in room.items()}
        each = [
            f'avg(coalesce(pg_column_size("{column.name}"), 0))' for column in schema.metadata.tables[table].columns
        ]
        parts = connection.execute(sa.text(f"SELECT {', '.join(each)} FROM {name}")).one()  # noqa: S608
    names = [column.name for column in schema.metadata.tables[table].columns]
    columns = {name: float(size) for name, size in zip(names, parts, strict=True)}
    print(f"{table}: {_told(room)}; columns: {_told(columns)}", file=sys.stderr)
    return room


_INDEXES = sa.text(
    "SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index"
    " WHERE indrelid = to_regclass(:name) ORDER BY 1"
)


def _told(sizes: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {size:.1f}" for name, size in sizes.items() if size)


def _result(budget: tuple[str, str, int], fresh: Mapping[str, Any], closed: Mapping[str, Any], other: float) -> Result:
    what, words, most = budget
    room = closed["all"]
    indexes = ", ".join(f"{name.rpartition('_p')[2][9:]} {size:.0f}" for name, size in list(closed.items())[2:])
    return Result(
        what,
        words,
        f"{room:.0f} bytes once its day is closed, {fresh['all']:.0f} before",
        f"{other:.0f} bytes (zstd -3 of the rows' JSON, one stream)",
        room / other,
        "met" if room <= most else "not met",
        f"of a closed day: table {closed['table']:.0f}, {indexes}",
    )

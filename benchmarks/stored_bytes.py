"""How much room an event and a node-hour of telemetry take in PostgreSQL: on the day they come, and once it is closed.

A month, by the product's own intake: a tenth of the events and a hundredth of the node-hours of 12,500 nodes (a day's
table has some pages whatever is in it, which at a full day's rows are nothing). Events are those of simulated sidecars
(`load_bodies.py`: every Xid of the catalogue on eight GPUs, flaps of links, at published rates), each with an id, a
time and a process of its own. Node-hours are those of the real tapes of fixtures/real/gwdg (four GPUs, fabric, host,
BMC), dealt out to nodes and days; those of the last day are written every five minutes, as a sidecar does, with a
VACUUM after each, which is more than autovacuum does. The other program is zstd: the same rows as JSON lines, all in
one stream, which nobody can look anything up in.
"""

import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
import zstandard
from real.postgres import postgres
from real.tapes import TAPES

from benchmarks.load_bodies import Bodies, events_a_second
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
from store.telemetry.packing import pack_closed_days

WHAT, BUDGET = "room of a stored event", "<= 250 bytes"
HOURS_WHAT, HOURS_BUDGET = "room of a node-hour of telemetry", "<= 600 bytes"
DAYS, FLEET = 30, 12_500
EVENTS, EVENT_NODES = int(events_a_second(FLEET) * 86_400 / 10), FLEET // 10  # a day
NODES = FLEET // 100  # of telemetry
BATCH = 250
WRITTEN = 12  # times an hour
_DAY = timedelta(days=1)
_TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
_MONTH = [_TODAY - _DAY * back for back in range(DAYS + 3, 3, -1)]
_CLOSED = _TODAY


def measure(folder: Path) -> Iterator[Result]:
    """Bytes a row of the days' tables with their indexes; what they are made of goes to standard error."""
    with postgres() as server:
        engine = open_database(server.new_database())
        migrate(engine)
        ensure_days(engine, _MONTH, ("events", "telemetry"))
        lines = _take_events(engine)
        fresh = _room(engine, "events", _MONTH[-1:])
        compact_days(engine, ["events"], _CLOSED)
        yield _result((WHAT, BUDGET, 250), fresh, _room(engine, "events", _MONTH), _streamed(lines))
        lines = _take_hours(engine, _tape_hours(folder))
        fresh = _room(engine, "telemetry", _MONTH[-1:])
        pack_closed_days(engine, _CLOSED)
        compact_days(engine, ["telemetry"], _CLOSED)
        yield _result((HOURS_WHAT, HOURS_BUDGET, 600), fresh, _room(engine, "telemetry", _MONTH), _streamed(lines))
        engine.dispose()


def _take_events(engine: sa.Engine) -> list[bytes]:
    """Events in the order of their times, some at once, as the API takes them; returns them as lines of JSON."""
    bodies, lines = Bodies(1), []
    for day in _MONTH:
        for first in range(0, EVENTS, BATCH):
            moments = [day + _DAY / EVENTS * number for number in range(first, min(EVENTS, first + BATCH))]
            nodes = (f"gpu-{number * 7919 % EVENT_NODES:05d}" for number in range(first, EVENTS))
            parts = (bodies.events(node, [moment])[1:-1] for node, moment in zip(nodes, moments, strict=False))
            events = decode_events(b"[" + b",".join(parts) + b"]") or []
            transact(engine, lambda connection, events=events, end=moments[-1]: append_events(connection, events, end))
            lines += [orjson.dumps(to_wire(event)) for event in events]
    return lines


def _take_hours(engine: sa.Engine, hours: Sequence[Rollup]) -> list[bytes]:
    """A node-hour of the tapes for each of the month; returns them as lines of JSON."""
    chosen, lines = itertools.cycle(hours), []
    for day in _MONTH:
        rollups = [
            replace(next(chosen), node=f"gpu-{node:05d}", time=day + timedelta(hours=hour))
            for hour in range(24)
            for node in range(NODES)
        ]
        for _ in range(WRITTEN if day == _MONTH[-1] else 1):
            transact(engine, lambda connection, rollups=rollups: append_rollups(connection, rollups, _TODAY))
            _vacuum(engine, name_of("telemetry", day.date()))
        lines += [orjson.dumps(rollup) for rollup in rollups]
    return lines


def _tape_hours(folder: Path) -> list[Rollup]:
    """The hours of the real tapes that tell of devices, mixed."""
    table, found = schema.telemetry, list[Rollup]()
    columns = [column for column in table.columns if column.name != "packed"]
    for number, tape in enumerate(sorted(TAPES.iterdir())):
        engine = open_database(f"sqlite:///{folder}/{number}.db")
        command = [sys.executable, "-m", "foreshock", "ingest", str(tape), "--db", str(engine.url)]
        subprocess.run(command, check=True, capture_output=True)
        with engine.connect() as connection:
            told = connection.execute(sa.select(*columns).where(table.c.devices.is_not(None))).mappings()
            found += [Rollup(**row) for row in told]
        engine.dispose()
    random.Random(1).shuffle(found)  # noqa: S311  # no secret
    return found


def _streamed(lines: Sequence[bytes]) -> float:
    """Bytes a row of one zstd stream of all."""
    return len(zstandard.ZstdCompressor(level=3).compress(b"\n".join(lines))) / len(lines)


def _room(engine: sa.Engine, table: str, days: Sequence[datetime]) -> Mapping[str, float]:
    """Bytes a row of days' tables: `all`, `table` (TOAST too), each index; `columns` goes to standard error."""
    sizes, rows, columns = Counter[str](), 0, Counter[str]()
    names = [column.name for column in schema.metadata.tables[table].columns]
    each = ", ".join(f'coalesce(sum(pg_column_size("{name}")), 0)' for name in names)
    parts = [name_of(table, day.date()) for day in days]
    _vacuum(engine, *parts)
    with engine.connect() as connection:
        for part in parts:
            sizes.update(
                {name.removeprefix(f"{part}_"): int(size) for name, size in connection.execute(_SIZES, {"name": part})}
            )
            count, *widths = connection.execute(sa.text(f"SELECT count(*), {each} FROM {part}")).one()  # noqa: S608
            rows += count
            columns.update(dict(zip(names, map(int, widths), strict=True)))
    print(f"{table}, {rows} rows: {_told(sizes, rows)}; columns: {_told(columns, rows)}", file=sys.stderr)
    return {name: size / rows for name, size in sizes.items()}


def _vacuum(engine: sa.Engine, *parts: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for part in parts:
            connection.execute(sa.text(f"VACUUM ANALYZE {part}"))


_SIZES = sa.text(
    "SELECT 'all', pg_total_relation_size(to_regclass(:name)) UNION ALL"
    " SELECT 'table', pg_table_size(to_regclass(:name)) UNION ALL"
    " SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index WHERE indrelid = to_regclass(:name)"
)


def _told(sizes: Mapping[str, int], rows: int) -> str:
    return ", ".join(f"{name} {size / rows:.1f}" for name, size in sizes.items() if size)


def _result(budget: tuple[str, str, int], fresh: Mapping[str, Any], closed: Mapping[str, Any], other: float) -> Result:
    what, words, most = budget
    room = closed["all"]
    indexes = ", ".join(f"{name} {size:.0f}" for name, size in sorted(closed.items()) if name not in ("all", "table"))
    day = FLEET * 24 if what == HOURS_WHAT else events_a_second(FLEET) * 86_400
    return Result(
        what,
        words,
        f"{room:.0f} bytes once its day is closed, {fresh['all']:.0f} before",
        f"{other:.0f} bytes (zstd -3 of the rows' JSON, one stream)",
        room / other,
        "met" if room <= most else "not met",
        f"{DAYS} days, closed: table {closed['table']:.0f}, {indexes}; "
        f"a year of {FLEET:,} nodes takes {room * day * 365 / 1e9:.0f} GB",
    )

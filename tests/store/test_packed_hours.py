"""Hours of closed days are packed, and everybody who reads them reads what was written."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import example, given
from hypothesis import strategies as st

from diagnosis.slow.slow_nodes import _readings
from predictor.history.arrays import to_ms
from predictor.history.device_telemetry import read_device_telemetry, read_measures
from store.database.closed_days import compact_days
from store.database.connections import migrate, open_database, transact
from store.database.copy import copy_database
from store.database.export import ExportRange, export
from store.database.partitions import ensure_days, partitions
from store.database.retention import prune
from store.events.append import append_events
from store.events.event_pages import EventWindow, read_events
from store.nodes.domains import days_of_links, link_readings
from store.records.event import Event
from store.records.telemetry import Rollup
from store.tables import schema
from store.tables.packed_hours import condensed, spread
from store.telemetry.hours import TelemetryWindow, append_rollups, telemetry_page
from store.telemetry.packing import CLOSED_FOR, pack_closed_days

DAY = datetime(2025, 3, 1, tzinfo=UTC)
NOW = DAY + timedelta(days=1) + CLOSED_FOR
NODES = tuple(f"gpu-{number:03d}" for number in range(24))


def told(number: int, hour: int) -> dict[str, dict[str, tuple[float | None, ...]]]:
    """What a node tells of an hour: figures of every sort."""
    figures = (float(hour), 8.25e-7 * number, None, 2**53, 3)
    names = ("sm_clock_min_mhz", "memory_clock_mhz", "symbol_error", "smart_5", "nvlink_crc_errors_l0", "naïve é")
    measures = dict.fromkeys(names, figures) | {"sm_clock_mhz": (1410, 1980, 1700.5, 1755.0, 8)}
    return {f"gpu:{gpu}": measures for gpu in range(8)} | {"node": {"load": (0, 0, 0.0, 0, 0)}}


def fill(engine: sa.Engine, nodes: tuple[str, ...] = NODES) -> None:
    """A day's hours of some nodes."""
    ensure_days(engine, [DAY, NOW], ("telemetry", "events"), now=NOW)
    rollups = [
        Rollup(node, DAY + timedelta(hours=hour), 40, 8, 50.5, devices=told(number, hour))
        for number, node in enumerate(nodes)
        for hour in range(24)
    ]
    transact(engine, lambda connection: append_rollups(connection, rollups, DAY))


def read(engine: sa.Engine, tmp_path: Path) -> list[Any]:
    """What each reader finds of it."""
    until = DAY + timedelta(days=1)
    with engine.connect() as connection:
        measures = read_measures(connection, {node: n for n, node in enumerate(NODES)}, to_ms(DAY), to_ms(until))
        found = [
            as_json(telemetry_page(connection, NODES[3], TelemetryWindow(), 30)),
            {name: [column.tolist() for column in (one.last, one.high)] for name, one in measures.items()},
            link_readings(connection, DAY, until),
            days_of_links(connection),
            {name: sorted(map(repr, ones)) for name, ones in _slow(connection, until - timedelta(hours=1))},
        ]
    export(engine, tmp_path, ["telemetry"], ExportRange(), force=True)
    file = pq.read_table(tmp_path / "telemetry" / f"day={DAY:%Y-%m-%d}.parquet").to_pylist()
    return [*found, [row | {"devices": json.loads(row["devices"])} for row in file]]


def as_json(value: Any) -> Any:
    """As an answer has it, where a tuple is a list."""
    return json.loads(json.dumps(value, default=str))


def _slow(connection: sa.Connection, now: datetime) -> Any:
    return _readings(connection, NODES, now).items()


def kept(engine: sa.Engine) -> tuple[int, int]:
    """Hours as JSON, and packed ones."""
    table = schema.telemetry.c
    with engine.connect() as connection:
        counts = sa.select(sa.func.count(table.devices), sa.func.count(table.packed))
        as_json, packed = connection.execute(counts).one()
        return as_json, packed


def test_every_reader_finds_what_was_written(any_engine: sa.Engine, tmp_path: Path) -> None:
    """In the API's page, in the model's columns, among links and slow devices, in an export."""
    fill(any_engine)
    before = read(any_engine, tmp_path)
    assert pack_closed_days(any_engine, NOW) == len(NODES) * 24
    assert kept(any_engine) == (0, len(NODES) * 24)
    assert read(any_engine, tmp_path) == before
    assert all(before)


def test_a_day_that_is_not_over_for_long_stays(any_engine: sa.Engine) -> None:
    """What comes late comes mostly within two days."""
    fill(any_engine)
    assert pack_closed_days(any_engine, NOW - timedelta(microseconds=1)) == 0
    assert kept(any_engine)[1] == 0


def test_what_is_too_little_for_a_dictionary_is_packed_without(any_engine: sa.Engine) -> None:
    """A node alone with one hour."""
    fill(any_engine, NODES[:1])
    with any_engine.begin() as connection:
        connection.execute(sa.delete(schema.telemetry).where(schema.telemetry.c.time > DAY))
    assert pack_closed_days(any_engine, NOW) == 1
    with any_engine.connect() as connection:
        assert connection.scalar(sa.select(schema.packed_days.c.dictionary)) == b""
        (hour,) = telemetry_page(connection, NODES[0], TelemetryWindow(), 2)
    assert as_json(hour["devices"]) == as_json(told(0, 0))


@pytest.mark.parametrize("steps", [0, 1, 2, 25])
def test_packing_goes_on_where_it_was_cut_off(any_engine: sa.Engine, tmp_path: Path, steps: int) -> None:
    """At any step; what was packed by then is read with what was not, and a second time nothing is left to do."""
    fill(any_engine)
    before, left = read(any_engine, tmp_path), iter([True] * steps)
    some = pack_closed_days(any_engine, NOW, lambda: next(left, False))
    assert read(any_engine, tmp_path) == before
    assert some + pack_closed_days(any_engine, NOW) == len(NODES) * 24
    assert pack_closed_days(any_engine, NOW) == 0
    assert read(any_engine, tmp_path) == before


def test_what_comes_late_is_joined_to_what_is_packed(any_engine: sa.Engine) -> None:
    """A measure told of again is replaced, as before; all else stays, and the gauges of the row are new."""
    fill(any_engine)
    pack_closed_days(any_engine, NOW)
    devices = {"gpu:0": {"smart_5": (1, 1, 1, 1, 0)}, "nic:mlx5_0/1": {"symbol_error": (7, 7, 7, 7, 0)}}
    late = Rollup(NODES[3], DAY + timedelta(hours=5), 41, 8, 60.5, devices=devices)
    for _ in range(2):
        transact(any_engine, lambda connection: append_rollups(connection, [late], NOW))
    with any_engine.connect() as connection:
        hour = telemetry_page(connection, NODES[3], TelemetryWindow(since=late.time), 1)[0]
    wanted = told(3, 5)
    wanted = {**wanted, "gpu:0": wanted["gpu:0"] | devices["gpu:0"], "nic:mlx5_0/1": devices["nic:mlx5_0/1"]}
    assert (hour["samples"], hour["gpu_temp_mean_c"]) == (41, 60.5)
    assert as_json(hour["devices"]) == as_json(wanted)


def test_a_copy_of_the_database_reads_the_same(any_engine: sa.Engine, tmp_path: Path) -> None:
    """Its dictionaries go with it."""
    fill(any_engine)
    before = read(any_engine, tmp_path)
    pack_closed_days(any_engine, NOW)
    other = open_database(f"sqlite:///{tmp_path}/other.db")
    migrate(other)
    copy_database(any_engine, other)
    assert read(other, tmp_path) == before
    other.dispose()


def test_dictionaries_go_with_the_hours_they_unpack(any_engine: sa.Engine) -> None:
    """Not before: an hour without its dictionary could never be read again."""
    fill(any_engine)
    pack_closed_days(any_engine, NOW)
    days = sa.select(sa.func.count()).select_from(schema.packed_days)
    for until, wanted in ((DAY + timedelta(hours=23), 1), (DAY + timedelta(days=1), 1)):
        prune(any_engine, {"telemetry": until})
        with any_engine.connect() as connection:
            assert connection.scalar(days) == wanted
    later = Rollup(NODES[0], DAY + timedelta(days=1), 1, 1)
    transact(any_engine, lambda connection: append_rollups(connection, [later], NOW))
    prune(any_engine, {"telemetry": DAY})
    with any_engine.connect() as connection:
        assert connection.scalar(days) == 0


def test_a_closed_day_is_written_anew_once(any_engine: sa.Engine, tmp_path: Path) -> None:
    """It takes less room, and holds what it held; what comes later goes in as before."""
    fill(any_engine)
    before = read(any_engine, tmp_path)
    pack_closed_days(any_engine, NOW)
    with any_engine.connect() as connection:
        days = [part.name for part in partitions(connection, "telemetry") if part.covers(DAY.date())]
        sizes = [connection.scalar(_SIZE, {"name": name}) for name in days]
    assert compact_days(any_engine, ("telemetry",), NOW - CLOSED_FOR) == len(days)
    assert compact_days(any_engine, ("telemetry",), NOW - CLOSED_FOR) == 0
    with any_engine.connect() as connection:
        assert all(connection.scalar(_SIZE, {"name": name}) < size for name, size in zip(days, sizes, strict=True))
        assert connection.scalar(sa.text("SHOW lock_timeout")) == "0" if days else True
    assert read(any_engine, tmp_path) == before
    fill(any_engine)


def test_the_indexes_of_a_closed_day_of_events_are_filled(any_engine: sa.Engine) -> None:
    """Once; the table stays as it is, which nobody writes to again."""
    ensure_days(any_engine, [DAY], ("events",), now=NOW)
    events = [Event(DAY + timedelta(seconds=number), "n", "kernel", "xid", 79) for number in range(2000)]
    transact(any_engine, lambda connection: append_events(connection, events[::2], DAY))
    before = kept_events(any_engine)
    with any_engine.connect() as connection:
        days = [part.name for part in partitions(connection, "events") if part.covers(DAY.date())]
    for wanted in (len(days), 0):
        assert compact_days(any_engine, ("events",), NOW - CLOSED_FOR) == wanted
        assert kept_events(any_engine) == before
    transact(any_engine, lambda connection: append_events(connection, events, DAY))
    assert len(kept_events(any_engine)) == len(events)


def kept_events(engine: sa.Engine) -> list[str | None]:
    """The ids, in order of time."""
    with engine.connect() as connection:
        return [event.id for event in read_events(connection, EventWindow(node="n"))]


_SIZE = sa.text("SELECT pg_total_relation_size(to_regclass(:name))")


def test_a_day_that_somebody_reads_is_left_alone(any_engine: sa.Engine) -> None:
    """Nobody waits for it: it is written anew another time."""
    fill(any_engine)
    with any_engine.connect() as connection:
        days = [part.name for part in partitions(connection, "telemetry") if part.covers(DAY.date())]
        for name in days:
            connection.execute(sa.text(f"SELECT 1 FROM {name} LIMIT 1"))  # noqa: S608  # a name of ours
            assert compact_days(any_engine, ("telemetry",), NOW) == 0
    assert compact_days(any_engine, ("telemetry",), NOW - CLOSED_FOR) == len(days)


numbers = st.none() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.just(-0.0)
figures = st.tuples(numbers, numbers, numbers, numbers, numbers) | numbers.map(lambda one: (one, one, one, one, 0))
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)


@given(st.dictionaries(names, st.dictionaries(names, figures, max_size=6), max_size=4))
@example({"gpu:0": {"a": (1, 1.0, 1, 1, 0), "b": (7.5, 13.0, 8, 9.25, 0.0), "c": (0.1, 0.3, 0.2, 0.1, 2)}})
@example({"gpu:0": {"a": (1e308, -1e308, 0, 5e-324, 1), "b": (True, 1, 1, 1, 0), "c": ([], 1, 1, 1, 0)}})
def test_any_figures_come_back_as_they_were(devices: dict[str, dict[str, tuple[Any, ...]]]) -> None:
    """Each digit, sign and kind of number: an integer is not a float of the same value."""
    text = json.dumps(devices)
    assert json.dumps(found(text)) == text


def found(text: str) -> Any:
    """What a reader finds of it."""
    kept = condensed(text)
    return json.loads(kept) if kept.startswith("\n") else spread(kept)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"a": 1}', '{"a": {"b": [1]}}', '{"a": {"b": "12345"}}', "{ "])
def test_what_is_no_devices_stays_as_it_is(text: str) -> None:
    """Whatever stood in the column: what reads it says what is wrong with it, as before."""
    assert condensed(text) == "\n" + text


def test_an_hour_that_nobody_can_read_costs_no_other_one(any_engine: sa.Engine) -> None:
    """As before its day was closed: the model leaves it out and counts it."""
    fill(any_engine)
    table, bad = schema.telemetry, {"gpu:0": {"smart_5": "five."}}
    with any_engine.begin() as connection:
        one = (table.c.node == NODES[0], table.c.time == DAY)
        connection.execute(sa.update(table).where(*one).values(devices=bad))
    pack_closed_days(any_engine, NOW)
    with any_engine.connect() as connection:
        found = read_device_telemetry(connection, {NODES[0]: 0}, to_ms(DAY), to_ms(NOW))
        assert telemetry_page(connection, NODES[0], TelemetryWindow(), 1)[0]["devices"] == bad
    assert (found.left_out, len(found.series["smart_5"].last)) == (1, 23 * 8)

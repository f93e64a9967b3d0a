"""What the watch of live sources finds in an archive's telemetry: over several files, in order of time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.archive.page_watch import ORIGIN, PageWatch
from collectors.telemetry import states
from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.telemetry import Sample
from store.telemetry.archive_table import time_span
from store.telemetry.pages import LEVELS, is_watched
from store.telemetry.telemetry_file import TelemetryFile, read_telemetry

START = datetime(2025, 3, 1, tzinfo=UTC)
SBE = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
XID = "DCGM_FI_DEV_XID_ERRORS"
DOWNED = "node_infiniband_link_downed_total"


def write(path: Path, rows: Sequence[dict[str, Any]]) -> TelemetryFile:
    """A telemetry file of rows {hour, node, gpu, FIELD...}, read; `hour` counts from START."""
    names = {name for row in rows for name in row} - {"hour"}
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in sorted(names)}
    times = [START + timedelta(hours=row["hour"]) for row in rows]
    pq.write_table(pa.table({"time": pa.array(times, pa.timestamp("us", tz="UTC")), **columns}), path)
    return read_telemetry(path)


def grid(hours: range, gpus: int = 2, node: str = "n1") -> list[dict[str, Any]]:
    """A full grid of samples, all counters 0."""
    return [{"hour": h, "node": node, "gpu": g, SBE: 0} for h in hours for g in range(gpus)]


def events_of(*files: TelemetryFile) -> list[Event]:
    """The events of files, the next of which begins where the one before ends."""
    watch = PageWatch()
    found = []
    for file in files:
        watch.take(file)
        found += watch.events_until(None)
    return found


def follow(*files: TelemetryFile) -> list[tuple[str, str | None, int | None, float]]:
    """(kind, node, GPU, hour) of every event of the files in order."""
    return [(event.kind, event.node, event.device.index, hour_of(event)) for event in events_of(*files)]


def hour_of(event: Event) -> float:
    """When an event was, in hours since START."""
    assert event.time is not None
    return (event.time - START).total_seconds() / 3600


def test_a_counter_that_rises_is_an_event_at_the_sample_that_shows_it(tmp_path: Path) -> None:
    """One that falls began anew: a driver was loaded, and counting goes on from there."""
    rows = [{"hour": h, "node": "n1", "gpu": 0, SBE: value} for h, value in enumerate([5, 5, 8, 0, 2])]
    events = events_of(write(tmp_path / "t", rows))
    assert [(e.kind, e.attributes.get("count"), e.severity, e.cause, hour_of(e)) for e in events] == [
        ("ecc_sbe", 3, "info", "hardware", 2),
        ("counter_reset", None, "info", "driver", 3),
        ("ecc_sbe", 2, "info", "hardware", 4),
    ]


def test_counters_carry_over_from_file_to_file(tmp_path: Path) -> None:
    """A rise between the last sample of one day and the first of the next is seen, also past a day without the node."""
    one = write(tmp_path / "1", [{"hour": 0, "node": "n1", "gpu": 0, SBE: 4}])
    two = write(tmp_path / "2", [{"hour": 24, "node": "n2", "gpu": 0, SBE: 9}])
    three = write(tmp_path / "3", [{"hour": 48, "node": "n1", "gpu": 0, SBE: 6}])
    assert follow(one, two, three) == [("ecc_sbe", "n1", 0, 48)]


def test_the_first_value_ever_seen_is_no_rise(tmp_path: Path) -> None:
    """Nobody knows when a counter got its first value."""
    assert follow(write(tmp_path / "1", [{"hour": 0, "node": "n1", "gpu": 0, SBE: 4}])) == []


def test_a_gpu_that_vanishes_while_its_node_reports_is_missing_until_it_returns(tmp_path: Path) -> None:
    """One event when it goes, one when it comes back."""
    rows = [row for row in grid(range(6)) if not (row["gpu"] == 1 and row["hour"] in (2, 3))]
    assert follow(write(tmp_path / "1", rows)) == [("gpu_missing", "n1", 1, 2), ("gpu_returned", "n1", 1, 4)]


def test_a_gap_of_the_whole_node_says_nothing_of_its_gpus(tmp_path: Path) -> None:
    """The exporter was down: fewer samples, no event."""
    file = write(tmp_path / "1", [row for row in grid(range(6)) if row["hour"] not in (2, 3)])
    assert follow(file) == []
    assert len(file.rollups.node) == 4


def test_a_gpu_missing_over_several_files_is_told_once(tmp_path: Path) -> None:
    """It goes at the end of one day, is absent all the next, and returns in the third."""
    one = write(tmp_path / "1", [r for r in grid(range(4)) if not (r["gpu"] == 1 and r["hour"] == 3)])
    two = write(tmp_path / "2", [r for r in grid(range(24, 28)) if r["gpu"] == 0])
    three = write(tmp_path / "3", [r for r in grid(range(48, 52)) if r["gpu"] == 0 or r["hour"] > 49])
    assert follow(one, two, three) == [("gpu_missing", "n1", 1, 3), ("gpu_returned", "n1", 1, 50)]


def test_a_gpu_absent_from_a_whole_file_is_missing_from_its_node_s_first_hour(tmp_path: Path) -> None:
    """It vanished over midnight; there again at the end of the next day, it returned."""
    one = write(tmp_path / "1", grid(range(4)))
    two = write(tmp_path / "2", [r for r in grid(range(24, 28)) if r["gpu"] == 0 or r["hour"] == 27])
    assert follow(one, two) == [("gpu_missing", "n1", 1, 24), ("gpu_returned", "n1", 1, 27)]


def test_a_gpu_never_seen_is_not_missing(tmp_path: Path) -> None:
    """A GPU that shows up late for the first time has been put in."""
    assert follow(write(tmp_path / "1", [r for r in grid(range(4)) if r["gpu"] == 0 or r["hour"] > 1])) == []


def test_event_ids_are_the_same_whatever_the_file_is_called(tmp_path: Path) -> None:
    """So that reading a file again, or the same hours in a larger one, adds nothing."""
    rows = [{"hour": h, "node": "n1", "gpu": 0, SBE: h} for h in range(3)]
    first = {event.id for event in events_of(write(tmp_path / "1", rows))}
    again = {event.id for event in events_of(write(tmp_path / "a", rows[:2]), write(tmp_path / "b", rows[1:]))}
    assert first == again
    assert len(first) == 2


def test_what_two_files_say_of_one_moment_is_one_look(tmp_path: Path) -> None:
    """GPUs in one file, their node in another: nothing is missing where the other file speaks."""
    gpus = write(tmp_path / "gpu", [{"hour": h, "node": "n1", "gpu": 0, XID: 79 if h > 2 else 0} for h in range(5)])
    node = write(tmp_path / "host", [{"hour": h, "node": "n1", DOWNED: int(h > 3)} for h in range(5)])
    watch = PageWatch()
    watch.take(gpus)
    assert watch.events_until(time_span(tmp_path / "host")[0]) == []
    watch.take(node)
    found = [(e.kind, e.code, e.device.type, hour_of(e)) for e in watch.events_until(None)]
    assert [one[1:] for one in found] == [(79, "gpu", 3), (None, "hca", 4)]


def test_files_that_overlap_are_told_once(tmp_path: Path) -> None:
    """Two tapes of one node, the second of which begins within the first."""
    rows: list[dict[str, Any]] = [{"hour": h, "node": "n1", "gpu": g, SBE: h // 4} for h in range(20) for g in range(2)]
    watch = PageWatch()
    watch.take(write(tmp_path / "1", [row for row in rows if row["hour"] < 14]))
    found = watch.events_until(time_span(write_path(tmp_path / "2", [row for row in rows if row["hour"] > 6]))[0])
    watch.take(read_telemetry(tmp_path / "2"))
    found += watch.events_until(None)
    whole = events_of(write(tmp_path / "whole", rows))
    assert sorted(event.id or "" for event in found) == sorted(event.id or "" for event in whole)


BOOT, CLOCK, BMC = "node_boot_time_seconds", "node_time_seconds", "ipmi_up"
STEP_S = 600
# What one moment of a node's GPUs says of each: whether it is there, its corrected errors, its last Xid, its heat.
GPU = st.tuples(
    st.booleans(),
    st.sampled_from([None, 0, 0, 0, 1, 2]),
    st.sampled_from([None, 0, 0, 0, 79]),
    st.sampled_from([None, 40.0, 41.0]),
)
# And of the node: the boot, the port's downs, whether the BMC answers.
HOST = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from([None, 0, 0, 1]), st.sampled_from([None, 1.0, 1.0, 0.0])
)
STRETCH = st.tuples(st.integers(1, 9), st.one_of(st.none(), st.tuples(GPU, GPU)), st.one_of(st.none(), HOST))


ALONE = ((True, None, 0, 40.0), (False, None, None, None))


@settings(max_examples=150, deadline=None)
# One look is lacking, and the watch took its GPU for one that reports half as often: its exporter never fell silent.
@example([(3, ALONE, None), (1, None, None), (1, ALONE, None), (3, None, (0, None, None))], [], (1, 1))
@given(
    stretches=st.lists(STRETCH, min_size=1, max_size=9),
    cuts=st.lists(st.integers(1, 60), max_size=2, unique=True),
    paces=st.tuples(st.sampled_from([1, 1, 5]), st.sampled_from([1, 1, 3])),
)
def test_the_looks_that_are_given_tell_what_all_of_them_tell(
    stretches: list[Any], cuts: list[int], paces: tuple[int, int]
) -> None:
    """Stretches of looks in which nothing changes, of GPUs and their node, each at its pace, in files cut anywhere."""
    gpus, hosts = [], []
    place = 0
    for length, of_gpus, of_host in stretches:
        for at in range(place, place + length):
            if at % paces[0] == 0:
                gpus += [(at, number, gpu) for number, gpu in enumerate(of_gpus or ()) if gpu[0]]
            hosts += [] if of_host is None or at % paces[1] else [(at, of_host)]
        place += length
    watch, found = PageWatch(), []
    for low, high in pairwise([0, *sorted(cuts), 10_000]):
        watch.take(summary_of_rows(gpus, hosts, (low, high)))
        found += watch.events_until(us(high))
    every = DeviceWatch(ORIGIN)
    expected = [
        event
        for at in sorted({row[0] for row in (*gpus, *hosts)})
        for event in every.add(look(at, gpus, hosts), START + timedelta(seconds=at * STEP_S), is_page=False)
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def us(place: int) -> int:
    """A moment of the grid in microseconds."""
    return int(START.timestamp() + place * STEP_S) * 1_000_000


def summary_of_rows(gpus: list[Any], hosts: list[Any], within: tuple[int, int]) -> TelemetryFile:
    """What an archive's file tells that holds these rows of GPUs and of their node."""
    low, high = within
    rows = [
        {"time": us(at), "node": "n", "gpu": number, SBE: sbe, XID: xid, "DCGM_FI_DEV_GPU_TEMP": temp}
        for at, number, (_, sbe, xid, temp) in gpus
        if low <= at < high
    ]
    rows += [
        {"time": us(at), "node": "n", BOOT: 1.7e9 + boot * 1e5, CLOCK: at * 600.0, DOWNED: downs, BMC: bmc}
        for at, (boot, downs, bmc) in hosts
        if low <= at < high
    ]
    kinds = {"time": pa.timestamp("us", tz="UTC"), "node": pa.string(), "gpu": pa.int64()}
    names = ("time", "node", "gpu", SBE, XID, "DCGM_FI_DEV_GPU_TEMP", BOOT, CLOCK, DOWNED, BMC)
    columns = {name: pa.array([row.get(name) for row in rows], kinds.get(name, pa.float64())) for name in names}
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        pq.write_table(pa.table(columns), path)
        return read_telemetry(path)


def look(at: int, gpus: list[Any], hosts: list[Any]) -> list[Sample]:
    """All that is told at a moment, without any table."""
    time = START + timedelta(seconds=at * STEP_S)
    found = []
    for place, number, (_, sbe, xid, temp) in gpus:
        values = {"ecc_sbe": sbe, "xid_last": xid, "gpu_temp_c": temp}
        found += [Sample(time, "n", number, known(values))] if place == at and known(values) else []
    for place, (boot, downs, bmc) in hosts:
        if place != at:
            continue
        clock = {"boot_time_s": 1.7e9 + boot * 1e5, "node_time_s": at * 600.0}
        found.append(Sample(time, "n", 0, clock, type="node", source="node_exporter"))
        if downs is not None:
            downed = {"link_downed": float(downs)}
            found.append(Sample(time, "n", 0, downed, type="hca", name="infiniband", source="node_exporter"))
        if bmc is not None:
            found.append(Sample(time, "n", 0, {"bmc_up": bmc}, type="bmc", source="ipmi"))
    return found


def known(values: dict[str, float | None]) -> dict[str, float]:
    """What was measured."""
    return {name: float(value) for name, value in values.items() if value is not None}


def test_the_levels_are_those_of_the_watch() -> None:
    """A page in which a level passes a limit is news for the watch alone if both have the same limits."""
    assert set(LEVELS.values()) == {(states._INLET_OVER_C, states._INLET_C)}
    assert LEVELS.keys() == {"temp_c", *states._INLET_MEASURES}
    watched = {states._THROTTLE, states._RATE, *states._STATES}
    assert all(is_watched(name, "node") for name in watched)


def write_path(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """The path of a file that was written."""
    write(path, rows)
    return path

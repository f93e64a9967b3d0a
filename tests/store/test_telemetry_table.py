"""Telemetry files: roll-ups, rises of counters and vanished GPUs, against the same done sample by sample."""

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from store.records.event import RecordError
from store.tables import schema
from store.telemetry.archive_table import (
    GpuSamples,
    first_moment,
    read_samples,
    read_telemetry,
    summarise,
)
from store.telemetry.gpu_history import GpuHistory
from store.telemetry.hours import insert_rollups
from store.telemetry.rollups import TelemetryFile

START = datetime(2025, 3, 1, tzinfo=UTC)
SBE = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A telemetry file of rows {hour, node, gpu, FIELD...}; `hour` counts from START."""
    names = {name for row in rows for name in row} - {"hour"}
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in sorted(names)}
    times = [START + timedelta(hours=row["hour"]) for row in rows]
    pq.write_table(pa.table({"time": pa.array(times, pa.timestamp("us", tz="UTC")), **columns}), path)
    return path


def grid(hours: range, gpus: int = 2, node: str = "n1") -> list[dict[str, Any]]:
    """A full grid of samples, all counters 0."""
    return [{"hour": h, "node": node, "gpu": g, SBE: 0} for h in hours for g in range(gpus)]


def follow(*files: TelemetryFile) -> list[tuple[str, str | None, int | None, int]]:
    """(kind, node, gpu, hour) of every event of the files in order."""
    carry = GpuHistory()
    found = []
    for number, file in enumerate(files):
        for event in carry.follow(file, f"{number}.parquet"):
            assert event.time is not None
            found.append(
                (event.kind, event.node, event.device.index, int((event.time - START).total_seconds() // 3600))
            )
    return sorted(found, key=lambda item: (item[3], item[0], item[2] or 0))


def test_a_roll_up_sums_up_a_node_s_hour(tmp_path: Path) -> None:
    """Means, extremes and the spread between GPUs, over several samples of two GPUs."""
    path = write(
        tmp_path / "t.parquet",
        [
            {"hour": 0, "node": "n1", "gpu": 0, "DCGM_FI_DEV_GPU_TEMP": 60.0, "DCGM_FI_DEV_POWER_USAGE": 400.0},
            {"hour": 0.5, "node": "n1", "gpu": 0, "DCGM_FI_DEV_GPU_TEMP": 70.0, "DCGM_FI_DEV_POWER_USAGE": None},
            {"hour": 0, "node": "n1", "gpu": 1, "DCGM_FI_DEV_GPU_TEMP": 50.0, "DCGM_FI_DEV_POWER_USAGE": 200.0},
        ],
    )
    table = read_telemetry(path).rollups
    assert table.samples.tolist() == [3]
    assert table.gpus_seen.tolist() == [2]
    assert table.values["gpu_temp_mean_c"].tolist() == [60.0]
    assert table.values["gpu_temp_max_c"].tolist() == [70.0]
    assert table.values["gpu_temp_spread_c"].tolist() == [15.0]
    assert table.values["power_mean_w"].tolist() == [300.0]
    assert "memory_temp_max_c" not in table.values


def test_a_utilisation_in_percent_becomes_a_ratio(tmp_path: Path) -> None:
    """DCGM gives percent, the store keeps 0-1."""
    path = write(tmp_path / "t.parquet", [{"hour": 0, "node": "n1", "gpu": 0, "DCGM_FI_DEV_GPU_UTIL": 50}])
    assert read_telemetry(path).rollups.values["gpu_util_mean"].tolist() == [0.5]


@pytest.mark.parametrize("blank", [2147483632, 9223372036854775794, 140737488355328])
def test_a_blank_is_absent_and_no_value(tmp_path: Path, blank: int) -> None:
    """DCGM's huge numbers for "not supported" are neither a temperature nor a rise of a counter."""
    rows = [
        {"hour": h, "node": "n1", "gpu": 0, "DCGM_FI_DEV_GPU_TEMP": blank, SBE: value}
        for h, value in enumerate([3, blank, 4])
    ]
    file = read_telemetry(write(tmp_path / "t.parquet", rows))
    assert all(math.isnan(value) for value in file.rollups.values["gpu_temp_max_c"])
    assert file.rises.count.tolist() == [1.0]


def test_a_counter_that_rises_is_an_event_and_one_that_falls_is_none(tmp_path: Path) -> None:
    """A fall is a driver reload: counting goes on from there."""
    rows = [{"hour": h, "node": "n1", "gpu": 0, SBE: value} for h, value in enumerate([5, 5, 8, 0, 2])]
    carry = GpuHistory()
    events = carry.follow(read_telemetry(write(tmp_path / "t.parquet", rows)), "t.parquet")
    assert [(e.kind, e.attributes["count"], e.severity, e.cause) for e in events] == [
        ("ecc_sbe", 3, "info", "hardware"),
        ("ecc_sbe", 2, "info", "hardware"),
    ]
    assert [e.time for e in events] == [START + timedelta(hours=2), START + timedelta(hours=4)]


def test_rises_of_one_hour_are_one_event_at_the_last(tmp_path: Path) -> None:
    """What an event says was known at its time."""
    rows = [{"hour": h / 4, "node": "n1", "gpu": 0, SBE: value} for h, value in enumerate([0, 1, 3, 3, 4])]
    events = GpuHistory().follow(read_telemetry(write(tmp_path / "t.parquet", rows)), "t.parquet")
    assert [(e.time, e.attributes["count"]) for e in events] == [
        (START + timedelta(minutes=30), 3),
        (START + timedelta(hours=1), 1),
    ]


def test_counters_carry_over_from_file_to_file(tmp_path: Path) -> None:
    """A rise between the last sample of one day and the first of the next is seen, also past a day without the GPU."""
    one = read_telemetry(write(tmp_path / "1", [{"hour": 0, "node": "n1", "gpu": 0, SBE: 4}]))
    two = read_telemetry(write(tmp_path / "2", [{"hour": 24, "node": "n2", "gpu": 0, SBE: 9}]))
    three = read_telemetry(write(tmp_path / "3", [{"hour": 48, "node": "n1", "gpu": 0, SBE: 6}]))
    assert follow(one, two, three) == [("ecc_sbe", "n1", 0, 48)]


def test_the_first_value_ever_seen_is_no_rise(tmp_path: Path) -> None:
    """Nobody knows when a counter got its first value."""
    assert follow(read_telemetry(write(tmp_path / "1", [{"hour": 0, "node": "n1", "gpu": 0, SBE: 4}]))) == []


def test_a_gpu_that_vanishes_while_its_node_reports_is_missing_until_it_returns(tmp_path: Path) -> None:
    """One event when it goes, one when it comes back."""
    rows = [row for row in grid(range(6)) if not (row["gpu"] == 1 and row["hour"] in (2, 3))]
    file = read_telemetry(write(tmp_path / "1", rows))
    assert follow(file) == [("gpu_missing", "n1", 1, 2), ("gpu_returned", "n1", 1, 4)]


def test_a_gap_of_the_whole_node_says_nothing_of_its_gpus(tmp_path: Path) -> None:
    """The exporter was down: fewer samples, no event."""
    file = read_telemetry(write(tmp_path / "1", [row for row in grid(range(6)) if row["hour"] not in (2, 3)]))
    assert follow(file) == []
    assert len(file.rollups.node) == 4


def test_a_gpu_missing_over_several_files_is_told_once(tmp_path: Path) -> None:
    """It goes at the end of one day, is absent all the next, and returns in the third."""
    one = read_telemetry(write(tmp_path / "1", [r for r in grid(range(4)) if not (r["gpu"] == 1 and r["hour"] == 3)]))
    two = read_telemetry(write(tmp_path / "2", [r for r in grid(range(24, 28)) if r["gpu"] == 0]))
    three = read_telemetry(write(tmp_path / "3", [r for r in grid(range(48, 52)) if r["gpu"] == 0 or r["hour"] > 49]))
    assert follow(one, two, three) == [("gpu_missing", "n1", 1, 3), ("gpu_returned", "n1", 1, 50)]


def test_a_gpu_absent_from_a_whole_file_is_missing_from_its_node_s_first_hour(tmp_path: Path) -> None:
    """It vanished over midnight."""
    one = read_telemetry(write(tmp_path / "1", grid(range(4))))
    two = read_telemetry(write(tmp_path / "2", [r for r in grid(range(24, 28)) if r["gpu"] == 0]))
    assert follow(one, two) == [("gpu_missing", "n1", 1, 24)]


def test_a_gpu_that_comes_late_in_the_next_file_was_missing(tmp_path: Path) -> None:
    """It was there yesterday, not in the first hours of today."""
    one = read_telemetry(write(tmp_path / "1", grid(range(4))))
    two = read_telemetry(write(tmp_path / "2", [r for r in grid(range(24, 28)) if r["gpu"] == 0 or r["hour"] == 27]))
    assert follow(one, two) == [("gpu_missing", "n1", 1, 24), ("gpu_returned", "n1", 1, 27)]


def test_a_gpu_never_seen_is_not_missing(tmp_path: Path) -> None:
    """A GPU that shows up late for the first time has been put in."""
    assert (
        follow(read_telemetry(write(tmp_path / "1", [r for r in grid(range(4)) if r["gpu"] == 0 or r["hour"] > 1])))
        == []
    )


def test_event_ids_are_the_same_each_time_and_different_among_files(tmp_path: Path) -> None:
    """So that reading a file again adds nothing."""
    rows = [{"hour": h, "node": "n1", "gpu": 0, SBE: h} for h in range(3)]
    file = read_telemetry(write(tmp_path / "1", rows))
    first, again, other = (GpuHistory().follow(file, name) for name in ("a", "a", "b"))
    assert [e.id for e in first] == [e.id for e in again]
    assert not {e.id for e in first} & {e.id for e in other}
    assert len({e.id for e in first}) == 2


def test_columns_of_other_kinds_are_passed_over_and_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    """The generic path: a table of drives, in milliseconds."""
    path = tmp_path / "drives.parquet"
    times = pa.array([datetime(2025, 3, 1), datetime(2025, 3, 2)], pa.timestamp("ms"))  # noqa: DTZ001
    pq.write_table(
        pa.table({"time": times, "node": ["a", "a"], "gpu": pa.array([0, 0], pa.int8()), "smart_5": [1, 2]}), path
    )
    file = read_telemetry(path)
    assert file.rollups.time_us.tolist() == [int(START.timestamp() * 1e6), int((START.timestamp() + 86400) * 1e6)]
    assert file.rollups.values == {}
    assert first_moment(path) == int(START.timestamp() * 1e6)


def test_rows_without_a_node_or_time_are_skipped_and_counted(tmp_path: Path) -> None:
    """They say nothing that could be placed."""
    path = write(tmp_path / "t", [{"hour": 0, "node": None, "gpu": 0}, {"hour": 0, "node": "n1", "gpu": 0}])
    assert (read_telemetry(path).rows, read_telemetry(path).skipped) == (1, 1)


def test_an_empty_table_gives_nothing(tmp_path: Path) -> None:
    """No rows, no roll-ups, no failure."""
    columns = {
        "time": pa.array([], pa.timestamp("us", tz="UTC")),
        "node": pa.array([], pa.string()),
        "gpu": pa.array([], pa.int32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t")
    file = read_telemetry(tmp_path / "t")
    assert (file.rows, follow(file), first_moment(tmp_path / "t")) == (0, [], 0)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"time": pa.array([START], pa.timestamp("us", tz="UTC")), "gpu": [0]}, "no column node"),
        ({"time": ["2025-03-01"], "node": ["a"], "gpu": [0]}, "time is string"),
        ({"time": pa.array([START], pa.timestamp("us", tz="UTC")), "node": ["a"], "gpu": [5000]}, "outside 0..1023"),
        ({"time": pa.array([START], pa.timestamp("us", tz="UTC")), "node": ["a"], "gpu": ["GPU-x"]}, "no readable"),
    ],
)
def test_a_table_that_does_not_fit_is_named_with_its_remedy(tmp_path: Path, columns: Any, problem: str) -> None:
    """The message says what is wrong."""
    pq.write_table(pa.table(columns), tmp_path / "t")
    with pytest.raises(RecordError, match=problem):
        read_telemetry(tmp_path / "t")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all", b"PAR1" + bytes(200) + b"PAR1"])
def test_a_file_that_is_no_parquet_is_named_with_its_remedy(tmp_path: Path, content: bytes) -> None:
    """Truncated, empty or another format."""
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(RecordError, match="no readable Parquet"):
        read_telemetry(tmp_path / "t")
    assert first_moment(tmp_path / "t") == 0


def test_a_file_without_footer_statistics_has_no_first_moment(tmp_path: Path) -> None:
    """Then the name decides the order."""
    path = write(tmp_path / "a", grid(range(2)))
    pq.write_table(pq.read_table(path), tmp_path / "b", write_statistics=False)
    assert first_moment(tmp_path / "b") == 0
    pq.write_table(pa.table({"x": [1]}), tmp_path / "c")
    assert first_moment(tmp_path / "c") == 0


def test_roll_ups_are_written_once_and_replaced_by_later_ones(tmp_path: Path, engine: sa.Engine) -> None:
    """In bulk, with what is unknown as NULL, and the node noted as seen."""
    rows = [{"hour": 0, "node": "n1", "gpu": 0, "DCGM_FI_DEV_GPU_TEMP": value} for value in (60.0, None)]
    cold, unknown = (read_telemetry(write(tmp_path / str(i), [row])) for i, row in enumerate(rows))
    with engine.begin() as connection:
        assert insert_rollups(connection, cold.nodes, cold.rollups) == 1
        assert insert_rollups(connection, unknown.nodes, unknown.rollups) == 1
    with engine.begin() as connection:
        stored = connection.execute(sa.select(schema.telemetry)).mappings().all()
        seen = connection.execute(sa.select(schema.nodes.c.node, schema.nodes.c.last_seen)).all()
    assert [(row["node"], row["time"], row["gpu_temp_mean_c"]) for row in stored] == [("n1", START, None)]
    assert [tuple(row) for row in seen] == [("n1", START)]


SAMPLE = st.tuples(
    st.integers(0, 30 * 3600).map(lambda s: s * 1_000_000),
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(0, 5)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SAMPLE, max_size=60, unique_by=lambda s: s[:3]))
def test_columns_and_single_samples_agree(samples: list[tuple[int, str, int, int | None]]) -> None:
    """Counts of samples, of GPUs and of what counters rose by are those of a plain loop."""
    file = summarise(columns_of(samples))
    hours: dict[tuple[str, int], list[int]] = defaultdict(list)
    risen: dict[tuple[str, int], float] = defaultdict(float)
    last: dict[tuple[str, int], int] = {}
    for time_us, node, gpu, value in sorted(samples, key=lambda s: s[0]):
        hours[node, time_us // 3_600_000_000].append(gpu)
        if value is not None:
            risen[node, gpu] += max(0, value - last.get((node, gpu), value))
            last[node, gpu] = value
    table = file.rollups
    got = {
        (file.nodes[n], t // 3_600_000_000): (c, g)
        for n, t, c, g in zip(table.node, table.time_us, table.samples, table.gpus_seen, strict=True)
    }
    assert got == {key: (len(gpus), len(set(gpus))) for key, gpus in hours.items()}
    total: dict[tuple[str, int], float] = defaultdict(float)
    for key, count in zip(file.rises.key.tolist(), file.rises.count.tolist(), strict=True):
        total[file.nodes[key // 1024], key % 1024] += count
    assert total == {key: count for key, count in risen.items() if count}


@settings(max_examples=60, deadline=None)
@given(st.lists(SAMPLE, max_size=60, unique_by=lambda s: s[:3]))
def test_missing_and_returned_alternate_and_fit_the_samples(samples: list[tuple[int, str, int, int | None]]) -> None:
    """A GPU is missing in just those hours in which its node reports and it does not, after it was first seen."""
    hours: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for time_us, node, gpu, _ in samples:
        hours[node][time_us // 3_600_000_000].add(gpu)
    expected = set()
    for node, seen in hours.items():
        state: dict[int, bool] = {}
        for hour in sorted(seen):
            for gpu in [g for g, there in state.items() if there and g not in seen[hour]]:
                expected.add(("gpu_missing", node, gpu, hour))
                state[gpu] = False
            for gpu in seen[hour]:
                if state.get(gpu) is False:
                    expected.add(("gpu_returned", node, gpu, hour))
                state[gpu] = True
    half = 15 * 3600 * 1_000_000
    halves = [[s for s in samples if s[0] < half], [s for s in samples if s[0] >= half]]
    carry = GpuHistory()
    for parts in ([samples], halves):
        carry = GpuHistory()
        found = [e for n, part in enumerate(parts) for e in carry.follow(summarise(columns_of(part)), f"{n}")]
        gaps = [e for e in found if e.kind.startswith("gpu_")]
        got = [(e.kind, e.node, e.device.index, int(e.time.timestamp()) // 3600) for e in gaps if e.time]
        assert sorted(got) == sorted(expected)


def columns_of(samples: list[tuple[int, str, int, int | None]]) -> GpuSamples:
    """The samples as a table of columns."""
    return GpuSamples(
        nodes=("a", "b"),
        node=np.array([["a", "b"].index(s[1]) for s in samples], dtype=np.int64),
        gpu=np.array([s[2] for s in samples], dtype=np.int64),
        time_us=np.array([s[0] for s in samples], dtype=np.int64),
        gauges={},
        counters={"ecc_sbe": np.array([math.nan if s[3] is None else s[3] for s in samples], dtype=np.float64)},
    )


def test_samples_of_a_dictionary_column_are_read_as_of_a_plain_one(tmp_path: Path) -> None:
    """Writers choose either for the node's name."""
    path = write(tmp_path / "t", grid(range(2)))
    table = pq.read_table(path)
    place = table.column_names.index("node")
    pq.write_table(table.set_column(place, "node", table["node"].dictionary_encode()), tmp_path / "d")
    assert read_samples(tmp_path / "d").nodes == read_samples(path).nodes == ("n1",)

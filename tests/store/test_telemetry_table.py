"""Telemetry files: their roll-ups, and what of them cannot be read."""

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
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
from store.telemetry.archive_table import DeviceSamples, TelemetryTable, read_file, time_span
from store.telemetry.hours import insert_rollups
from store.telemetry.rollups import HOUR_US
from store.telemetry.telemetry_file import read_telemetry, summarise

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
    (pages,) = file.pages
    counted = pages.values[:, pages.names.index("ecc_sbe")].tolist()
    assert [value for value in counted if not math.isnan(value)] == [3.0, 4.0]


def test_columns_of_other_kinds_are_passed_over_and_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    """The generic path: a table of drives, in milliseconds."""
    path = tmp_path / "drives.parquet"
    times = pa.array([datetime(2025, 3, 1), datetime(2025, 3, 2)], pa.timestamp("ms"))  # noqa: DTZ001
    pq.write_table(
        pa.table({"time": times, "node": ["a", "a"], "gpu": pa.array([0, 0], pa.int8()), "smart_5": [1, 2]}), path
    )
    file = read_telemetry(path)
    start_us = int(START.timestamp() * 1e6)
    assert file.rollups.time_us.tolist() == [start_us - HOUR_US, start_us + 23 * HOUR_US]
    assert file.rollups.values == {}
    assert time_span(path) == (start_us, start_us + 24 * HOUR_US)


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
    assert (file.rows, file.pages, time_span(tmp_path / "t")) == (0, (), (0, 0))


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
    assert time_span(tmp_path / "t") == (0, 0)


def test_a_file_without_footer_statistics_has_no_first_moment(tmp_path: Path) -> None:
    """Then the name decides the order."""
    path = write(tmp_path / "a", grid(range(2)))
    pq.write_table(pq.read_table(path), tmp_path / "b", write_statistics=False)
    assert time_span(tmp_path / "b") == (0, 0)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "c")
    assert time_span(tmp_path / "c") == (0, 0)


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
    """Counts of samples and of GPUs are those of a plain loop."""
    file = summarise(columns_of(samples))
    hours: dict[tuple[str, int], list[int]] = defaultdict(list)
    times = {(node, gpu): sorted(s[0] for s in samples if s[1:3] == (node, gpu)) for _, node, gpu, _ in samples}
    apart = [later - earlier for one in times.values() for earlier, later in pairwise(one)]
    late = 1 if apart and median(apart) > HOUR_US else 0  # rows of more than an hour belong to the one that they end
    for time_us, node, gpu, _ in samples:
        hours[node, (time_us - late) // HOUR_US].append(gpu)
    table = file.rollups
    got = {
        (file.nodes[n], t // 3_600_000_000): (c, g)
        for n, t, c, g in zip(table.node, table.time_us, table.samples, table.gpus_seen, strict=True)
    }
    assert got == {key: (len(gpus), len(set(gpus))) for key, gpus in hours.items()}


def columns_of(samples: list[tuple[int, str, int, int | None]]) -> TelemetryTable:
    """The samples as a table of columns."""
    gpus = DeviceSamples(
        node=np.array([["a", "b"].index(s[1]) for s in samples], dtype=np.int64),
        device=np.array([s[2] for s in samples], dtype=np.int64),
        time_us=np.array([s[0] for s in samples], dtype=np.int64),
        counters={"ecc_sbe": np.array([math.nan if s[3] is None else s[3] for s in samples], dtype=np.float64)},
    )
    return TelemetryTable(("a", "b"), (gpus,))


def test_samples_of_a_dictionary_column_are_read_as_of_a_plain_one(tmp_path: Path) -> None:
    """Writers choose either for the node's name."""
    path = write(tmp_path / "t", grid(range(2)))
    table = pq.read_table(path)
    place = table.column_names.index("node")
    pq.write_table(table.set_column(place, "node", table["node"].dictionary_encode()), tmp_path / "d")
    assert read_file(tmp_path / "d", _nodes) == read_file(path, _nodes) == ("n1",)


def _nodes(table: TelemetryTable) -> tuple[str, ...]:
    return table.nodes


def test_numbers_written_as_text_are_numbers_and_other_words_are_counted(tmp_path: Path) -> None:
    """One `n/a` of a script that wrote text costs itself, not the file."""
    field = "DCGM_FI_DEV_GPU_TEMP"
    rows = [{"hour": h, "node": "n1", "gpu": 0, field: said} for h, said in enumerate(["60", "n/a", "7e1", "", None])]
    file = read_telemetry(write(tmp_path / "t.parquet", rows))
    found = file.rollups.values["gpu_temp_mean_c"].tolist()
    assert [found[0], found[2]] == [60.0, 70.0]
    assert all(math.isnan(found[place]) for place in (1, 3, 4))
    assert file.left_out == (f"column {field!r}: 2 values are text and no numbers",)

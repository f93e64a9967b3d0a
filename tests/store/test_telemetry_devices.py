"""Measures of devices from an archive's columns: the same as the sidecar makes of the same values, one by one."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from collectors.telemetry.rollups import DeviceHours
from collectors.telemetry.rollups import rounded as rounded_by_sidecar
from store.records.event import RecordError
from store.records.telemetry import MAX_DEVICES, MAX_MEASURES, Rollup
from store.tables import schema
from store.telemetry import rollups
from store.telemetry.hours import insert_rollups, merge_rollups
from store.telemetry.rollups import DeviceHistory, rounded
from store.telemetry.telemetry_file import TelemetryFile, read_telemetry

START = datetime(2025, 3, 1, tzinfo=UTC)


def write(path: Path, rows: Sequence[tuple[float, str, int]], **columns: Any) -> TelemetryFile:
    """A file of (hour since START, node, gpu) and columns, read back."""
    keys = {
        "time": pa.array([START + timedelta(hours=hour) for hour, _, _ in rows], pa.timestamp("us", tz="UTC")),
        "node": pa.array([node for _, node, _ in rows], pa.string()),
        "gpu": pa.array([gpu for _, _, gpu in rows], pa.int32()),
    }
    pq.write_table(pa.table({**keys, **columns}), path)
    return read_telemetry(path)


def told(*files: TelemetryFile) -> list[dict[str, Any] | None]:
    """What the roll-ups of each file tell of devices, one after the other."""
    carry = DeviceHistory()
    return [
        None if text is None else json.loads(text)
        for file in files
        for text in carry.follow(file.devices, file.nodes) or ()
    ]


def test_an_unknown_column_is_told_of_its_device(tmp_path: Path) -> None:
    """Min, max, mean, last and changes of each hour and GPU, under the column's own name."""
    rows = [(0, "n", 0), (0.2, "n", 0), (0.4, "n", 0), (0, "n", 1), (1, "n", 0)]
    file = write(tmp_path / "t", rows, smart_5=[4, 1, 1, 7, 9], fan=[0.25, None, 0.5, 0.125, None])
    assert told(file) == [
        {
            "gpu:0": {"smart_5": [1, 4, 2, 1, 1], "fan": [0.25, 0.5, 0.375, 0.5, 1]},
            "gpu:1": {"smart_5": [7, 7, 7, 7, 0], "fan": [0.125, 0.125, 0.125, 0.125, 0]},
        },
        {"gpu:0": {"smart_5": [9, 9, 9, 9, 1]}},
    ]
    (table,) = file.devices
    assert table.devices[1] == '{"gpu:0":{"smart_5":[9,9,9,9,1]}}'


def test_a_file_of_our_own_fields_alone_tells_nothing_of_devices(tmp_path: Path) -> None:
    """It costs nothing then, and what a sidecar told stays as it is."""
    file = write(tmp_path / "t", [(0, "n", 0)], DCGM_FI_DEV_GPU_TEMP=[61.0], name=["x"], ok=[True])
    assert file.devices == ()
    assert told(file) == []


def test_an_hour_without_a_value_is_null(tmp_path: Path) -> None:
    """As is a file with no value at all, and one without rows."""
    nothing = pa.array([None, None], pa.int32())
    assert told(write(tmp_path / "t", [(0, "n", 0), (1, "n", 0)], smart_5=nothing)) == [None, None]
    assert told(write(tmp_path / "u", [(0, "n", 0), (1, "n", 0)], smart_5=[None, 3])) == [
        None,
        {"gpu:0": {"smart_5": [3, 3, 3, 3, 0]}},
    ]
    assert write(tmp_path / "v", [], smart_5=pa.array([], pa.int32())).devices == ()


def test_it_agrees_with_the_sidecar_value_by_value(tmp_path: Path) -> None:
    """Four GPUs over two days in no order, whole numbers and fractions of every size, with holes."""
    random = np.random.default_rng(7)
    hours_told = [float(hour) for start in range(48) for hour in start + np.arange(12) / 12]
    rows = [(hours_told[i // 4], "n", i % 4) for i in random.permutation(4 * len(hours_told)).tolist()]
    whole: list[int | None] = [None if random.random() < 0.3 else int(v) for v in random.poisson(2, len(rows))]
    parts = [float(v) for v in random.normal(0, 1, len(rows)) * 10.0 ** random.integers(-9, 12, len(rows))]
    days = [[i for i, row in enumerate(rows) if low <= row[0] < low + 24] for low in (0, 24)]
    got = told(
        *(
            write(tmp_path / str(n), [rows[i] for i in day], count=[whole[i] for i in day], x=[parts[i] for i in day])
            for n, day in enumerate(days)
        )
    )
    hours = DeviceHours()
    for i in sorted(range(len(rows)), key=lambda i: rows[i]):
        hour, _, gpu = rows[i]
        count = whole[i]
        hours.add(f"gpu:{gpu}", {"x": parts[i], **({} if count is None else {"count": count})}, at(hour))
    expected = [rollup.devices for rollup in hours.rollups("n")]
    assert len(got) == len(expected) == 48
    for ours, theirs in zip(got, expected, strict=True):
        assert ours is not None and theirs is not None
        assert {device: sorted(measures) for device, measures in ours.items()} == {
            device: sorted(measures) for device, measures in theirs.items()
        }
        for device, measures in theirs.items():
            for name, values in measures.items():
                assert ours[device][name] == pytest.approx(list(values), rel=2e-6)
                assert ours[device][name][4] == values[4]


def at(hour: float) -> datetime:
    """A moment by its hours since START."""
    return START + timedelta(hours=hour)


@pytest.mark.parametrize("value", [0.0, 0.1, -0.1234567, 12.345678, 1e-9 / 3, 2.5e14 / 3, -7.0, 123456789.5, 1e-300])
def test_numbers_are_rounded_as_the_sidecar_rounds_them(value: float) -> None:
    """Six digits; a whole number every digit."""
    for values in ([value], [value, 3.0, 0.5]):
        assert rounded(np.array(values))[0] == pytest.approx(rounded_by_sidecar(value), rel=1e-12, abs=1e-22)
    assert repr(rounded(np.array([4.0, 0.1 + 0.2, math.nan]))) == "[4, 0.3, 0]"


def test_absurd_values_are_kept_and_impossible_ones_are_absent(tmp_path: Path) -> None:
    """1.5e9 power cycles happen; infinity, what no counter holds and DCGM's blanks are nothing that was measured."""
    rows = [(0, "n", 0), (0.1, "n", 0), (0, "n", 1), (0, "n", 2), (0, "n", 3)]
    file = write(
        tmp_path / "t",
        rows,
        big=[1_500_000_000, 1_500_000_001, 2_147_483_632, -5, 9_223_372_036_854_775_807],
        x=[9e18, 8e18, math.inf, -1e300, math.nan],
    )
    big, x = [1_500_000_000, 1_500_000_001, 1.5e9, 1_500_000_001, 1], [8e18, 9e18, 8.5e18, 8e18, 1]
    assert told(file) == [{"gpu:0": {"big": big, "x": x}, "gpu:2": {"big": [-5, -5, -5, -5, 0]}}]


def test_a_change_over_the_border_of_two_files_counts(tmp_path: Path) -> None:
    """As a rise of a counter does; a measure that the file between does not have is remembered over it."""
    one = write(tmp_path / "1", [(0, "a", 0), (0, "b", 1)], x=[1, 1], y=[5, 5])
    two = write(tmp_path / "2", [(24, "b", 1), (24, "a", 0)], y=[6, 5])
    three = write(tmp_path / "3", [(48, "a", 0), (49, "a", 0), (48, "b", 1)], x=[2, 2, 1], y=[5, 5, 6])
    changes = [
        {name: values[4] for measures in (devices or {}).values() for name, values in measures.items()}
        for devices in told(one, two, three)
    ]
    first, between, then = changes[:2], changes[2:4], changes[4:]
    assert first == [{"x": 0, "y": 0}] * 2
    assert sorted(between, key=str) == [{"y": 0}, {"y": 1}]
    assert then == [{"x": 1, "y": 0}, {"x": 0, "y": 0}, {"x": 0, "y": 0}]


def test_rows_that_cannot_be_placed_take_their_values_with_them(tmp_path: Path) -> None:
    """A row without a time or node is skipped in every column alike; one without a GPU is its node's."""
    keys = {
        "time": pa.array([None, START, START, START], pa.timestamp("us", tz="UTC")),
        "node": pa.array(["n", None, "n", "n"]),
        "gpu": pa.array([0, 0, None, 0]),
    }
    pq.write_table(pa.table({**keys, "x": [1, 2, 3, 4]}), tmp_path / "t")
    file = read_telemetry(tmp_path / "t")
    assert file.skipped == 2
    assert told(file) == [{"gpu:0": {"x": [4, 4, 4, 4, 0]}, "node": {"x": [3, 3, 3, 3, 0]}}]


def test_columns_beyond_what_a_roll_up_holds_are_named(tmp_path: Path) -> None:
    """The first ones of the file are kept; with two GPUs each has half of the measures."""
    names = [f"m{n}" for n in range(MAX_MEASURES // 2 + 2)]
    file = write(tmp_path / "t", [(0, "n", 0), (0, "n", 1)], **{name: [1, 2] for name in names})
    (devices,) = told(file)
    assert devices is not None
    assert sum(map(len, devices.values())) == MAX_MEASURES
    assert [text.split(":")[0] for text in file.left_out] == ["column 'm1024'", "column 'm1025'"]
    assert "1024 of each of 2 GPUs" in file.left_out[0]


def test_devices_beyond_what_a_roll_up_holds_are_named(tmp_path: Path) -> None:
    """Their own columns are left out, also when they change from file to file; the node's roll-up counts them."""
    rows = [(0, "n", 0), (0, "n", MAX_DEVICES), (0, "n", MAX_DEVICES + 5)]
    file = write(tmp_path / "t", rows, x=[1, 2, 3])
    later = write(tmp_path / "u", [(hour + 24, node, gpu) for hour, node, gpu in rows], x=[1, 3, 4])
    assert told(file, later) == [{"gpu:0": {"x": [1, 1, 1, 1, 0]}}] * 2
    assert file.rollups.gpus_seen.tolist() == [3]
    assert [text.split(":")[0] for text in file.left_out] == ["the own columns of gpu 64", "the own columns of gpu 69"]


def test_a_file_too_wide_for_its_length_keeps_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hours times its columns are bounded, so that a worker's memory is."""
    monkeypatch.setattr(rollups, "MAX_CELLS", 7)
    file = write(tmp_path / "t", [(hour, "n", 0) for hour in range(3)], a=[1] * 3, b=[2] * 3, c=[3] * 3)
    assert [sorted(devices["gpu:0"]) for devices in told(file) if devices] == [["a", "b"]] * 3
    assert file.left_out == ("column 'c': 3 hours of GPUs have room for 2 measures in one file: split it by time",)


def test_a_file_with_two_columns_of_a_name_it_needs_is_refused(tmp_path: Path) -> None:
    """Nobody knows which of them is meant."""
    times = pa.array([START], pa.timestamp("us", tz="UTC"))
    table = pa.Table.from_arrays([times, pa.array(["n"]), pa.array([0]), pa.array([1])], ["time", "node", "gpu", "gpu"])
    pq.write_table(table, tmp_path / "t")
    with pytest.raises(RecordError, match="two columns gpu"):
        read_telemetry(tmp_path / "t")


def test_a_column_with_a_dot_in_its_name_is_itself(tmp_path: Path) -> None:
    """Parquet's paths have dots too."""
    assert told(write(tmp_path / "t", [(0, "n", 0)], **{"a.b": [1], "a": [2]})) == [
        {"gpu:0": {"a.b": [1, 1, 1, 1, 0], "a": [2, 2, 2, 2, 0]}}
    ]


def test_what_a_sidecar_told_of_the_same_hour_stays(tmp_path: Path, any_engine: sa.Engine) -> None:
    """Measures join, those told again are replaced; written twice is written once; without columns nothing changes."""
    live: dict[str, dict[str, list[float | None]]] = {
        "gpu:0": {"power_w": [1, 2, 1.5, 2, 1], "x": [9, 9, 9, 9, 0]},
        "nic:mlx5_0/1": {"symbol_error": [0, 0, 0, 0, 0]},
    }
    file = write(tmp_path / "t", [(0, "n", 0)], x=[3])
    bare = write(tmp_path / "u", [(0, "n", 0)])
    with any_engine.begin() as connection:
        merge_rollups(connection, [Rollup("n", START, 0, 0, devices=live)])
        for _ in range(2):
            insert_rollups(connection, file.nodes, file.rollups, DeviceHistory().follow(file.devices, file.nodes))
        insert_rollups(connection, bare.nodes, bare.rollups)
        stored = connection.execute(sa.select(schema.telemetry.c.devices, schema.telemetry.c.samples)).all()
    assert stored == [({**live, "gpu:0": {"power_w": [1, 2, 1.5, 2, 1], "x": [3, 3, 3, 3, 0]}}, 1)]

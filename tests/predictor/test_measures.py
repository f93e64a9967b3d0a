"""Measures of devices as arrays: every one that was told in time, in order, and nothing else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from predictor.history import device_telemetry
from predictor.history.arrays import HOUR_MS, to_ms
from predictor.history.device_telemetry import DeviceTelemetry, read_device_telemetry, read_measures
from store.database.connections import writing
from store.records.telemetry import Rollup
from store.tables import schema
from store.telemetry.hours import merge_rollups

START = datetime(2025, 3, 1, tzinfo=UTC)
START_MS = to_ms(START)


def rollup(node: str, hour: int, devices: dict[str, Any] | None) -> Rollup:
    """What a source told of a node's devices in an hour since START."""
    return Rollup(node, START + timedelta(hours=hour), 0, 0, devices=devices)


def values(last: float, high: float | None = None) -> list[float | None]:
    """An hour of a measure whose last and highest value are these."""
    return [0, last if high is None else high, 0.5, last, 3]


def read(engine: sa.Engine, rollups: list[Rollup], first: int = -100, last: int = 100) -> DeviceTelemetry:
    """What is read of nodes a (0) and b (1) between two hours, once these roll-ups are stored."""
    with writing(engine).begin() as connection:
        merge_rollups(connection, rollups)
    window = START_MS + first * HOUR_MS, START_MS + last * HOUR_MS
    with engine.connect() as connection:
        found = read_device_telemetry(connection, {"a": 0, "b": 1}, *window)
        assert read_measures(connection, {"a": 0, "b": 1}, *window).keys() == found.series.keys()
    return found


def rows(found: DeviceTelemetry, name: str) -> list[tuple[int, str, int, float, float]]:
    """(subject, device, hour that ended, last, high) of every entry of a measure."""
    one = found.series[name]
    return [
        (subject, found.devices[device], (time_ms - START_MS) // HOUR_MS, last, high)
        for subject, device, time_ms, last, high in zip(
            *(column.tolist() for column in (one.subject, one.device, one.time_ms, one.last, one.high)), strict=True
        )
    ]


def test_every_measure_of_every_device_is_read_in_order(any_engine: sa.Engine) -> None:
    """By node, device and time, whatever the order of the database; the time is the end of the hour."""
    found = read(
        any_engine,
        [
            rollup("b", 0, {"gpu:0": {"smart_5": values(1)}}),
            rollup("a", 1, {"gpu:1": {"smart_5": values(4)}, "gpu:0": {"smart_5": values(3, 9), "x": values(0.5)}}),
            rollup("a", 0, {"gpu:0": {"smart_5": values(2)}, "nic:mlx5_0/1": {"symbol_error": values(7)}}),
        ],
    )
    assert sorted(found.series) == ["smart_5", "symbol_error", "x"]
    by_device = sorted(rows(found, "smart_5"))
    assert by_device == [(0, "gpu:0", 1, 2, 2), (0, "gpu:0", 2, 3, 9), (0, "gpu:1", 2, 4, 4), (1, "gpu:0", 1, 1, 1)]
    one = found.series["smart_5"]
    assert np.lexsort((one.time_ms, one.device, one.subject)).tolist() == [0, 1, 2, 3]
    assert rows(found, "symbol_error") == [(0, "nic:mlx5_0/1", 1, 7, 7)]
    assert rows(found, "x") == [(0, "gpu:0", 2, 0.5, 0.5)]


def test_the_arrays_are_of_the_promised_types(engine: sa.Engine) -> None:
    """Whole numbers in 64 bits, values in 32."""
    one = read(engine, [rollup("a", 0, {"gpu:0": {"x": values(1)}})]).series["x"]
    assert [column.dtype for column in (one.subject, one.device, one.time_ms)] == [np.int64] * 3
    assert [column.dtype for column in (one.last, one.high)] == [np.float32] * 2


def test_only_hours_that_had_ended_are_read(any_engine: sa.Engine) -> None:
    """From the hour that begins with the window to the one that ends with it: nothing later was known."""
    told = [rollup("a", hour, {"gpu:0": {"x": values(hour)}}) for hour in range(-1, 5)]
    assert [row[2] for row in rows(read(any_engine, told, 0, 4), "x")] == [1, 2, 3, 4]
    with any_engine.connect() as connection:
        window = START_MS + 1, START_MS + 4 * HOUR_MS - 1
        assert read_measures(connection, {"a": 0}, *window)["x"].last.tolist() == [1, 2]
        assert read_measures(connection, {"a": 0}, window[1], window[0]) == {}


def test_unknown_nodes_and_untold_values_are_passed_over(engine: sa.Engine) -> None:
    """Roll-ups without devices, measures that are null, nodes that are not of the fleet."""
    found = read(
        engine,
        [
            rollup("a", 0, None),
            rollup("a", 1, {"gpu:0": {"x": [None] * 5, "y": [None, 1, None, None, None]}, "gpu:1": {}}),
            rollup("c", 0, {"gpu:0": {"x": values(1)}}),
        ],
    )
    assert found.series == {}
    assert found.left_out == 0


def test_an_empty_store_has_no_measures(any_engine: sa.Engine) -> None:
    """And no devices."""
    assert read(any_engine, []) == DeviceTelemetry({}, ())


@pytest.mark.parametrize("text", ["[1]", '{"gpu:0":{"x":[1,2]}}', '{"gpu:0":{"x":"many"}}', '{"gpu:0":3}'])
def test_a_roll_up_of_another_shape_is_counted_and_passed_over(engine: sa.Engine, text: str) -> None:
    """What is good beside it is read."""
    with writing(engine).begin() as connection:
        merge_rollups(connection, [rollup("b", 0, {"gpu:0": {"x": values(2)}})])
        broken = "INSERT INTO telemetry (node, time, samples, gpus_seen, devices) VALUES ('a', :time, 0, 0, :text)"
        connection.execute(sa.text(broken), {"time": START_MS * 1000, "text": text})
    found = read(engine, [])
    assert rows(found, "x") == [(1, "gpu:0", 1, 2, 2)]
    assert found.left_out == 1


def test_measures_beyond_the_limit_are_counted(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that are met are kept, wherever they are told."""
    monkeypatch.setattr(device_telemetry, "MAX_NAMES", 2)
    told = [rollup("a", hour, {"gpu:0": {"x": values(1), "y": values(2), "z": values(3)}}) for hour in range(3)]
    found = read(engine, told)
    assert [(name, len(one.last)) for name, one in found.series.items()] == [("x", 3), ("y", 3)]
    assert found.left_out == 3


def test_many_fetches_are_one_series(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is fetched at once."""
    monkeypatch.setattr(device_telemetry, "_FETCH_ROLLUPS", 3)
    found = read(any_engine, [rollup("a", hour, {"gpu:0": {"x": values(hour)}}) for hour in range(10)])
    assert found.series["x"].last.tolist() == list(range(10))
    with any_engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.telemetry)) == 10

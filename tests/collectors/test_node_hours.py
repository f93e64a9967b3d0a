"""Samples to roll-ups."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from collectors.telemetry.rollups import NodeHours
from store.records.telemetry import Rollup, Sample

HOUR = datetime(2025, 3, 1, 4, tzinfo=UTC)


def sample(minute: int, gpu: int = 0, node: str = "n1", **values: float) -> Sample:
    """One GPU at a minute after four."""
    return Sample(time=HOUR + timedelta(minutes=minute), node=node, gpu=gpu, values=values)


def test_an_hour_is_finished_by_the_first_sample_of_the_next() -> None:
    """With means over samples, extremes, and the spread of the GPUs' means."""
    hours = NodeHours()
    assert hours.add([sample(0, gpu_temp_c=60, power_w=500, gpu_util_ratio=1.0, sm_clock_mhz=1980)]) == []
    hours.add([sample(0, gpu=1, gpu_temp_c=70, power_w=300, gpu_util_ratio=0.5, sm_clock_mhz=1200, memory_temp_c=80)])
    hours.add([sample(30, gpu_temp_c=62)])
    [finished] = hours.add([sample(60, gpu_temp_c=50)])
    assert finished == Rollup(
        node="n1",
        time=HOUR,
        samples=3,
        gpus_seen=2,
        gpu_temp_mean_c=64.0,
        gpu_temp_max_c=70,
        gpu_temp_spread_c=9.0,
        memory_temp_max_c=80,
        power_mean_w=400,
        power_max_w=500,
        gpu_util_mean=0.75,
        sm_clock_min_mhz=1200,
        devices=finished.devices,
    )
    assert finished.devices is not None
    assert finished.devices["gpu:0"]["gpu_temp_c"] == (60, 62, 61, 62, 1)
    assert finished.devices["gpu:1"]["sm_clock_mhz"] == (1200, 1200, 1200, 1200, 0)


def test_what_nobody_measured_is_missing_not_zero() -> None:
    """A GPU that is there without values counts as seen."""
    hours = NodeHours()
    hours.add([sample(1)])
    [partial] = hours.partial()
    assert (partial.samples, partial.gpus_seen) == (1, 1)
    assert (partial.gpu_temp_mean_c, partial.gpu_temp_spread_c, partial.power_max_w) == (None, None, None)


def test_a_partial_hour_is_given_when_it_changed() -> None:
    """Nodes apart."""
    hours = NodeHours()
    hours.add([sample(1, node="n2", power_w=1), sample(1, node="n1", power_w=2)])
    assert [rollup.node for rollup in hours.partial()] == ["n1", "n2"]
    assert hours.partial() == []
    hours.add([sample(2, node="n2", power_w=3)])
    assert [(rollup.node, rollup.power_mean_w) for rollup in hours.partial()] == [("n2", 2.0)]


def test_a_sample_of_an_hour_that_is_over_changes_nothing_and_is_counted() -> None:
    """Or a late one would replace a whole hour by itself."""
    hours = NodeHours()
    hours.add([sample(61, power_w=1)])
    assert hours.add([sample(1, power_w=9)]) == []
    assert hours.late == 1
    assert [rollup.samples for rollup in hours.partial()] == [1]


def test_only_accelerators_fill_the_columns_of_the_node() -> None:
    """An NPU is a GPU there; a network adapter is not."""
    hours = NodeHours()
    at = HOUR + timedelta(minutes=1)
    hours.add([Sample(at, "n1", 3, {"gpu_temp_c": 50.0, "power_w": 90.0}, type="npu", source="npu")])
    hours.add([Sample(at, "n1", 0, {"power_w": 9000.0}, type="hca", name="mlx5_0", port=1, source="node_exporter")])
    [partial] = hours.partial()
    assert (partial.samples, partial.gpus_seen, partial.power_max_w) == (1, 1, 90.0)
    assert partial.devices is not None
    assert sorted(partial.devices) == ["nic:mlx5_0/1", "npu:3"]


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_restart_in_the_middle_of_an_hour_loses_nothing(cut: int) -> None:
    """The state goes through JSON, as the spool keeps it."""
    samples = [sample(10 * i, gpu=i % 3, gpu_temp_c=60 + i, power_w=100 * i) for i in range(8)]
    whole = NodeHours()
    expected = [*whole.add(samples), *whole.partial()]
    before = NodeHours()
    found = before.add(samples[:cut])
    after = NodeHours(json.loads(json.dumps(before.state())))
    found += after.add(samples[cut:])
    assert [*found, *after.partial()] == expected

"""Values of devices to roll-ups."""

import json
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.telemetry.rollups import DeviceHours, rounded
from store.records.telemetry import MAX_DEVICES, MAX_MEASURES, Rollup

HOUR = datetime(2025, 3, 1, 4, tzinfo=UTC)


def at(minute: float) -> datetime:
    """So many minutes after four."""
    return HOUR + timedelta(minutes=minute)


def measure(rollup: Rollup, device: str, name: str) -> list[float | None]:
    """What a roll-up says of one measure."""
    assert rollup.devices is not None
    return list(rollup.devices[device][name])


def test_an_hour_tells_min_max_mean_last_and_changes() -> None:
    """Of each device and measure apart."""
    hours = DeviceHours()
    for minute, value in enumerate((60.0, 63.0, 63.0, 57.0)):
        hours.add("gpu:3", {"gpu_temp_c": value}, at(minute))
    hours.add("nic:mlx5_0/1", {"symbol_error": 7.0}, at(5))
    [rollup] = hours.rollups("n1")
    assert (rollup.node, rollup.time, rollup.samples, rollup.gpus_seen) == ("n1", HOUR, 0, 0)
    assert measure(rollup, "gpu:3", "gpu_temp_c") == [57, 63, 60.75, 57, 2]
    assert measure(rollup, "nic:mlx5_0/1", "symbol_error") == [7, 7, 7, 7, 0]


def test_a_change_over_the_end_of_an_hour_is_counted_in_the_next() -> None:
    """Or the changes of a day would not be the sum of its hours'."""
    hours = DeviceHours()
    hours.add("gpu:0", {"ecc_sbe": 1.0, "still": 5.0}, at(59))
    hours.add("gpu:0", {"ecc_sbe": 2.0, "still": 5.0}, at(60))
    hours.add("gpu:0", {"ecc_sbe": 2.0}, at(61))
    first, second = hours.rollups("n1")
    assert (first.time, measure(first, "gpu:0", "ecc_sbe")) == (HOUR, [1, 1, 1, 1, 0])
    assert (second.time, measure(second, "gpu:0", "ecc_sbe")) == (at(60), [2, 2, 2, 2, 1])
    assert measure(second, "gpu:0", "still") == [5, 5, 5, 5, 0]


def test_a_device_that_is_gone_is_not_in_the_next_hour() -> None:
    """What nobody measured is missing; after a whole hour without it, it is forgotten."""
    hours = DeviceHours()
    hours.add("gpu:0", {"power_w": 1.0}, at(0))
    hours.add("gpu:1", {"power_w": 1.0}, at(0))
    for minute in (60, 120):
        hours.add("gpu:0", {"power_w": 1.0}, at(minute))
    assert [sorted(rollup.devices or {}) for rollup in hours.rollups("n1")] == [
        ["gpu:0", "gpu:1"],
        ["gpu:0"],
        ["gpu:0"],
    ]
    assert list(hours.state()["devices"]) == ["gpu:0"]


def test_the_open_hour_is_given_again_when_it_changed() -> None:
    """And not else."""
    hours = DeviceHours()
    assert hours.rollups("n1") == []
    hours.add("gpu:0", {"power_w": 1.0}, at(0))
    assert len(hours.rollups("n1")) == 1
    assert hours.rollups("n1") == []
    hours.add("gpu:0", {"power_w": 3.0}, at(1))
    assert measure(hours.rollups("n1")[0], "gpu:0", "power_w") == [1, 3, 2, 3, 1]


def test_what_is_late_or_no_number_is_left_out() -> None:
    """An hour that is over stays as it was sent."""
    hours = DeviceHours()
    hours.add("gpu:0", {"power_w": 1.0, "a": nan, "b": inf}, at(60))
    hours.add("gpu:0", {"power_w": 9.0}, at(1))
    [rollup] = hours.rollups("n1")
    assert rollup.devices == {"gpu:0": {"power_w": (1, 1, 1, 1, 0)}}
    assert hours.late == 1


def test_devices_and_measures_are_bounded_and_the_rest_is_counted() -> None:
    """A page of nonsense fills neither the memory nor the row."""
    hours = DeviceHours()
    for device in range(MAX_DEVICES + 3):
        hours.add(f"gpu:{device}", {"power_w": 1.0}, at(0))
    assert hours.left_out == 3
    hours.add("gpu:0", {f"m{number}": 1.0 for number in range(MAX_MEASURES)}, at(1))
    assert hours.left_out == 3 + MAX_DEVICES
    [rollup] = hours.rollups("n1")
    assert rollup.devices is not None
    assert sum(len(measures) for measures in rollup.devices.values()) == MAX_MEASURES


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_restart_loses_nothing(cut: int) -> None:
    """The state goes through JSON, as the spool keeps it."""
    values = [(f"gpu:{i % 2}", {"a": i * 1.5, "b": float(i // 3)}, at(13 * i)) for i in range(9)]
    whole = DeviceHours()
    for value in values:
        whole.add(*value)
    before = DeviceHours()
    for value in values[:cut]:
        before.add(*value)
    after = DeviceHours(json.loads(json.dumps(before.state())))
    for value in values[cut:]:
        after.add(*value)
    assert json.dumps([r.devices for r in after.rollups("n1")]) == json.dumps([r.devices for r in whole.rollups("n1")])


def test_a_saved_state_does_not_change_afterwards() -> None:
    """It is compared with the one before, to tell whether there is news."""
    hours = DeviceHours()
    hours.add("gpu:0", {"power_w": 1.0}, at(0))
    state = hours.state()
    hours.add("gpu:0", {"power_w": 2.0}, at(1))
    assert state != hours.state()
    assert state["devices"]["gpu:0"]["power_w"] == [1, 1, 1, 1, 1, 0]


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_rounding_keeps_six_digits_and_whole_numbers(value: float) -> None:
    """Counters of nanoseconds too."""
    assert rounded(value) == pytest.approx(value, rel=1e-5)
    assert rounded(987_654_321_012_345.0) == 987_654_321_012_345

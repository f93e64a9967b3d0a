"""States and levels of a device: what changed tells, in which words, and no more than once."""

from datetime import UTC, datetime, timedelta

import pytest

from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.telemetry import Sample

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def told(samples: list[dict[str, float]], **where: str) -> list[Event]:
    """The events of one device's values, ten minutes apart."""
    watch = DeviceWatch("here")
    made = [
        Sample(NOON + timedelta(minutes=10 * number), "n1", 0, values, **where)  # type: ignore[arg-type]
        for number, values in enumerate(samples)
    ]
    return [*watch.follow(made), *watch.finish()]


PORT = {"type": "hca", "name": "mlx5_0", "source": "node_exporter"}
BMC = {"type": "bmc", "source": "ipmi"}


@pytest.mark.parametrize(
    ("where", "measure", "values", "kinds"),
    [
        (PORT, "state_id", (4, 1, 1, 4), [("link_down", "error"), ("link_up", "info")]),
        (PORT, "state_id", (4, 2), [("link_inactive", "warning")]),
        (PORT, "state_id", (1, 1), []),
        (PORT, "physical_state_id", (5, 2, 5), [("link_down", "error"), ("link_up", "info")]),
        (PORT, "physical_state_id", (5, 3), [("link_down", "info")]),
        (PORT, "rate_bytes_per_s", (5e10, 2.5e10, 5e10), [("link_degraded", "warning"), ("link_restored", "info")]),
        (BMC, "chassis_power_state", (1, 0, 1), [("node_power", "info"), ("node_power", "info")]),
        (BMC, "bmc_up", (1, 0, 1), [("bmc_silent", "info"), ("bmc_returned", "info")]),
        (BMC, "inlet_temp_c", (22, 36, 36, 34, 32), [("inlet_hot", "warning"), ("inlet_hot", "info")]),
        ({}, "throttle_reasons", (0, 0x4), []),
        ({}, "throttle_reasons", (0x1, 0x48, 0x40, 0x1), [("gpu_throttled", "warning")]),
    ],
)
def test_a_state_that_changes_is_told_once(
    where: dict[str, str], measure: str, values: tuple[float, ...], kinds: list[tuple[str, str]]
) -> None:
    """The first value is how it stands; a port down at first may never have been cabled."""
    assert [(one.kind, one.severity) for one in told([{measure: value} for value in values], **where)] == kinds


def test_a_port_s_two_states_are_one_change() -> None:
    """The logical one follows from the physical one."""
    up, down = ({"state_id": state, "physical_state_id": physical} for state, physical in ((4.0, 5.0), (1.0, 2.0)))
    assert [one.kind for one in told([up, down], **PORT)] == ["link_down"]


def test_a_power_that_goes_on_and_off_is_told_at_a_bounded_rate() -> None:
    """Three times at once, then ever more seldom."""
    values = [{"chassis_power_state": float(number % 2)} for number in range(144 * 5)]
    assert len(told(values, **BMC)) < 30


def test_a_counter_that_rises_at_each_sample_is_told_at_a_bounded_rate() -> None:
    """A port that flaps for ten days: nothing of it is lost, and it is no flood."""
    values = [{"carrier_changes": 80.0 * number} for number in range(1440)]
    found = told(values, type="node", source="node_exporter")
    assert len(found) < 20
    assert sum(int(one.attributes["count"] or 0) for one in found) >= 80 * (1439 - 144)


def test_a_rise_that_was_held_back_is_told_when_it_is_due() -> None:
    """Though the counter rises no more."""
    values = [{"pcie_replay": float(min(number, 5))} for number in range(20)]
    found = told(values)
    assert sum(int(one.attributes["count"] or 0) for one in found) == 5

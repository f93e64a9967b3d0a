"""Histories as they should not be: two machines under one name, clocks that jump, metrics that change their meaning."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.telemetry import Sample

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
BOOT = 1_740_000_000.0


def at(number: float) -> datetime:
    """So many ten minutes after noon."""
    return NOON + timedelta(minutes=10 * number)


def told(samples: list[Sample]) -> list[Event]:
    """The events of a history."""
    watch = DeviceWatch("here")
    return [*watch.follow(samples), *watch.finish()]


def host(number: float, boot_s: float, clock_s: float | None = None) -> Sample:
    """What node_exporter says of the node."""
    clock = {} if clock_s is None else {"node_time_s": clock_s}
    return Sample(at(number), "n1", 0, {"boot_time_s": boot_s, **clock}, type="node", source="node_exporter")


def test_two_machines_under_one_name_are_told_as_that_and_not_as_reboots() -> None:
    """Their boot times alternate: at most the first is taken for a reboot, the rest is no flood."""
    found = Counter(one.kind for one in told([host(number, BOOT + 5000 * (number % 2)) for number in range(1440)]))
    assert found["node_reboot"] <= 1
    assert 1 <= found["name_shared"] < 20
    assert found.total() < 30


def test_two_machines_whose_rows_stand_at_the_same_moments_are_told_as_that() -> None:
    """Each GPU is there twice, with two UUIDs."""
    rows = [
        Sample(at(number), "n1", 0, {"pcie_replay": 10.0 * machine}, uuid=f"GPU-{machine}")
        for number in range(100)
        for machine in (1, 2)
    ]
    found = Counter(one.kind for one in told(rows))
    assert 1 <= found["name_shared"] < 20
    assert found.total() < 30


def test_a_clock_that_jumps_back_and_forth_is_no_reboot() -> None:
    """The boot time moves with it, and lies before the moments at which the node was seen."""
    clock = BOOT + 1_000_000
    rows = [host(0, BOOT, clock), host(1, BOOT + 7200, clock + 7800), host(2, BOOT, clock + 1200)]
    assert [one.kind for one in told(rows)] == ["clock_jump", "clock_jump"]


def test_a_drift_of_seconds_is_no_reboot() -> None:
    """A clock that is disciplined moves the boot time by some seconds at a time."""
    assert told([host(number, BOOT + 3 * number) for number in range(10)]) == []


def test_a_reboot_after_a_day_without_telemetry_says_so() -> None:
    """Nobody saw when it went down."""
    rows = [*(host(number, BOOT) for number in range(6)), host(160, BOOT + 90_000)]
    [reboot] = told(rows)
    assert reboot.kind == "node_reboot"
    assert reboot.attributes["silent_s"] == 155 * 600
    assert "after 1.08 d without telemetry" in reboot.message


def test_a_gauge_under_a_counter_s_name_is_told_once_and_then_ignored() -> None:
    """It goes up and down; that is neither errors nor drivers loaded anew."""
    rows = [Sample(at(number), "n1", 0, {"pcie_replay": float(number % 2)}) for number in range(1440)]
    found = Counter(one.kind for one in told(rows))
    assert found["metric_changed"] == 1
    assert found.total() < 15


def test_a_counter_is_a_counter_again_after_it_was_none() -> None:
    """Two days later its rises are told."""
    odd = [Sample(at(number), "n1", 0, {"pcie_replay": float(number % 2)}) for number in range(12)]
    later = [Sample(at(600 + number), "n1", 0, {"pcie_replay": 10.0 + number}) for number in range(2)]
    assert [one.kind for one in told(odd + later)][-1] == "pcie_replay"


@pytest.mark.parametrize("blank", [nan, inf, -inf, 2147483632.0, 9223372036854775794.0, 140737488355328.0])
def test_a_blank_is_no_value(blank: float) -> None:
    """DCGM writes huge numbers for what it does not know."""
    values = (0.0, blank, 0.0)
    rows = [Sample(at(number), "n1", 0, {"xid_last": one, "pcie_replay": one}) for number, one in enumerate(values)]
    assert {one.kind for one in told(rows)} <= {"metric_missing", "metric_returned"}


def test_rows_that_come_late_change_nothing_and_are_counted() -> None:
    """What is older than what is known of its device is left out."""
    watch = DeviceWatch("here")
    rows = [Sample(at(number), "n1", 0, {"xid_last": float(code)}) for number, code in enumerate((0, 0, 0, 0))]
    assert [*watch.follow(rows), *watch.follow([Sample(at(1.5), "n1", 0, {"xid_last": 79.0})]), *watch.finish()] == []
    assert watch.late == 1


@pytest.mark.parametrize("interval_s", [10, 15, 60, 600, 3600, 86_400])
def test_a_lost_gpu_is_told_by_the_cadence_of_its_source(interval_s: int) -> None:
    """At the second look without it of many, at the first where they are few; a gap of all tells nothing."""
    times = [NOON + timedelta(seconds=interval_s * number) for number in range(30)]
    rows = [
        Sample(time, "n1", gpu, {"gpu_temp_c": 40.0})
        for number, time in enumerate(times)
        for gpu in range(4)
        if not (gpu == 2 and number >= 20) and not 8 <= number < 12
    ]
    [missing] = told(rows)
    assert (missing.kind, missing.device.index) == ("gpu_missing", 2)
    assert missing.time == times[20 if interval_s >= 300 else 21]


def test_exporters_that_report_at_other_moments_are_not_silent() -> None:
    """Each at its own pace and with a jitter: none of it is a silence, until one is silent."""
    rows = []
    for number in range(200):
        time = NOON + timedelta(seconds=15 * number)
        rows.append(Sample(time + timedelta(seconds=number % 3), "n1", 0, {"gpu_temp_c": 40.0}))
        if number % 4 == 0 and number < 120:
            values = {"boot_time_s": BOOT}
            rows.append(Sample(time + timedelta(seconds=7), "n1", 0, values, type="node", source="node_exporter"))
        if number % 8 == 0:
            rows.append(Sample(time + timedelta(seconds=11), "n1", 0, {"bmc_up": 1.0}, type="bmc", source="ipmi"))
    found = told(rows)
    assert [(one.kind, one.source) for one in found] == [("exporter_down", "node_exporter")]

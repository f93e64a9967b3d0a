"""Samples to events."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from collectors.telemetry.device_watch import DeviceWatch
from collectors.telemetry.presence import MISSES
from diagnosis.symptoms.meaning import meaning_of
from store.records.event import Event
from store.records.telemetry import Sample

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
URL = "http://127.0.0.1:9400/metrics"


class Page:
    """Pages scraped one after the other, fifteen seconds apart."""

    def __init__(self) -> None:
        self.watch = DeviceWatch(URL)
        self.time = NOON

    def scrape(self, *samples: tuple[str, int, dict[str, float]], uuid: str | None = None) -> list[Event]:
        """One page: node, GPU and values of each sample."""
        self.time += timedelta(seconds=15)
        # Through JSON and back each time, as over a restart.
        self.watch = DeviceWatch(URL, json.loads(json.dumps(self.watch.state())))
        made = [Sample(self.time, node, gpu, values, uuid, f"0000:{gpu:02x}:00.0") for node, gpu, values in samples]
        return self.watch.add(made, self.time)

    def scrape_any(self, *samples: tuple[str | None, dict[str, float]], **where: Any) -> list[Event]:
        """One page of named devices of the node n1."""
        self.time += timedelta(seconds=15)
        self.watch = DeviceWatch(URL, json.loads(json.dumps(self.watch.state())))
        return self.watch.add([Sample(self.time, "n1", 0, v, name=name, **where) for name, v in samples], self.time)


def kinds(events: list[Event]) -> list[tuple[str | None, str]]:
    """Node and kind."""
    return [(event.node, event.kind) for event in events]


def test_a_counter_that_rises_is_an_event_with_the_increase() -> None:
    """The first value is where it stands; an unchanged one is no news."""
    page = Page()
    assert page.scrape(("n1", 3, {"ecc_sbe": 40})) == []
    assert page.scrape(("n1", 3, {"ecc_sbe": 40})) == []
    [event] = page.scrape(("n1", 3, {"ecc_sbe": 42}))
    assert (event.node, event.source, event.kind, event.severity, event.cause) == (
        "n1",
        "dcgm",
        "ecc_sbe",
        "info",
        "hardware",
    )
    assert event.attributes == {"count": 2, "counter": "ecc_sbe"}
    assert event.time == page.time
    assert (event.device.type, event.device.index, event.device.pci) == ("gpu", 3, "0000:03:00.0")
    assert event.id is not None


@pytest.mark.parametrize(
    ("name", "kind", "severity"),
    [
        ("ecc_sbe", "ecc_sbe", "info"),
        ("ecc_dbe", "ecc_dbe", "error"),
        ("row_remap_correctable", "row_remap", "warning"),
        ("row_remap_uncorrectable", "row_remap", "error"),
        ("row_remap_failure", "row_remap_failure", "error"),
        ("nvlink_crc", "nvlink_crc", "warning"),
        ("nvlink_replay", "nvlink_replay", "warning"),
        ("pcie_replay", "pcie_replay", "warning"),
        ("thermal_violation", "thermal_violation", "warning"),
    ],
)
def test_every_counter_makes_its_kind_of_event(name: str, kind: str, severity: str) -> None:
    """Of the hardware, as grave as the counter is."""
    page = Page()
    page.scrape(("n1", 0, {name: 0}))
    [event] = page.scrape(("n1", 0, {name: 1}))
    assert (event.kind, event.severity, event.cause) == (kind, severity, "hardware")


def test_a_counter_that_fell_began_anew() -> None:
    """What it shows is the increase since the driver was loaded; nothing where it shows nothing."""
    page = Page()
    page.scrape(("n1", 0, {"pcie_replay": 100}))
    assert kinds(page.scrape(("n1", 0, {"pcie_replay": 0}))) == [("n1", "counter_reset")]
    page.scrape(("n1", 0, {"pcie_replay": 9}))
    rose, reset = page.scrape(("n1", 0, {"pcie_replay": 4}))
    assert rose.attributes["count"] == 4
    assert (reset.kind, reset.severity, reset.device.index) == ("counter_reset", "info", 0)


def test_counters_of_many_devices_that_begin_anew_are_one_event() -> None:
    """A driver that is loaded again resets all GPUs of a node."""
    page = Page()
    page.scrape(*(("n1", gpu, {"pcie_replay": 5, "ecc_sbe": 5}) for gpu in range(8)))
    [reset] = page.scrape(*(("n1", gpu, {"pcie_replay": 0, "ecc_sbe": 0}) for gpu in range(8)))
    assert (reset.kind, reset.attributes["devices"], reset.device.type) == ("counter_reset", 8, "node")


def test_a_counter_that_was_blank_meanwhile_keeps_its_place() -> None:
    """Missing is not zero."""
    page = Page()
    page.scrape(("n1", 0, {"ecc_dbe": 1}))
    assert page.scrape(("n1", 0, {})) == []
    assert [event.attributes["count"] for event in page.scrape(("n1", 0, {"ecc_dbe": 3}))] == [2]


def test_a_changed_last_xid_that_proves_a_fault_is_that_xid() -> None:
    """As grave as the catalogue says, though no line of the kernel's log is at hand; it stands until it is cleared."""
    page = Page()
    page.scrape(("n1", 0, {"xid_last": 0}))
    [xid] = page.scrape(("n1", 0, {"xid_last": 79}))
    assert (xid.kind, xid.code, xid.severity, xid.cause, xid.action, xid.device.index) == (
        *("xid", 79, "fatal", "hardware", "reboot_node"),
        0,
    )
    assert xid.attributes["after"] == (page.time - timedelta(seconds=15)).isoformat()
    assert page.scrape(("n1", 0, {"xid_last": 79})) == []
    assert page.scrape(("n1", 0, {"xid_last": 0})) == []


def test_a_changed_last_xid_of_a_program_is_a_hint() -> None:
    """The kernel log is the witness of whose fault it was."""
    page = Page()
    page.scrape(("n1", 0, {"xid_last": 0}))
    [hint] = page.scrape(("n1", 0, {"xid_last": 31}))
    assert (hint.kind, hint.code, hint.severity, hint.device.index) == ("xid_hint", 31, "info", 0)


def test_a_fault_that_stands_is_told_once_an_hour_until_its_gauge_clears_or_is_gone() -> None:
    """Another code in its place, and a GPU that is not reported itself, end it not."""
    page = Page()
    page.scrape(("n1", 0, {"xid_last": 0}), ("n1", 1, {"xid_last": 0}))
    page.scrape(("n1", 0, {"xid_last": 79}), ("n1", 1, {"xid_last": 0}))
    since = page.time

    def told(*shown: dict[str, float]) -> list[Event]:
        found = []
        for _ in range(2 * 240):
            found += page.scrape(*(("n1", gpu, values) for gpu, values in enumerate(shown)))
        return [event for event in found if event.kind == "xid_hint" and event.attributes.get("error") == "stands"]

    first, second = told({"xid_last": 79}, {"xid_last": 0})
    assert (first.code, first.severity, first.cause, first.device.index) == (79, "warning", "hardware", 0)
    assert first.message == f"Xid 79 still stands, since {since.isoformat()}"
    assert meaning_of(second).symptom == "gpu_lost"
    assert len(told({"xid_last": 154}, {"xid_last": 0})) == 2
    assert told({"gpu_temp_c": 40.0}, {"xid_last": 0}) == []
    page.scrape(("n1", 1, {"xid_last": 0}))
    page.scrape(("n1", 1, {"xid_last": 0}))
    gone = page.watch.add([Sample(page.time + timedelta(hours=2), "n1", 1, {"xid_last": 0})], page.time)
    assert [event.device.index for event in gone if event.attributes.get("error") == "stands"] == [0]
    assert told({"xid_last": 0}, {"xid_last": 0}) == []
    assert told({"xid_last": 0}, {"xid_last": 0}) == []


@pytest.mark.parametrize(("code", "severity"), [(79, "warning"), (31, "info")])
def test_an_xid_that_stands_at_first_is_told_once_as_old(code: int, severity: str) -> None:
    """The gauge is sticky: nobody knows how old it is."""
    page = Page()
    [hint] = page.scrape(("n1", 0, {"xid_last": code}))
    assert (hint.kind, hint.code, hint.severity, hint.attributes) == ("xid_hint", code, severity, {"age": "unknown"})
    assert page.scrape(("n1", 0, {"xid_last": code})) == []


def test_an_exporter_without_the_series_until_the_first_xid_tells_a_change() -> None:
    """dcgm-exporter from 4.5.3 on: that the series lacks is neither a lost GPU nor a missing value."""
    page = Page()
    page.scrape(("n1", 0, {"gpu_temp_c": 40.0}))
    assert page.scrape(("n1", 0, {"gpu_temp_c": 40.0})) == []
    [xid] = page.scrape(("n1", 0, {"gpu_temp_c": 40.0, "xid_last": 79}))
    assert (xid.kind, xid.code) == ("xid", 79)
    assert [event for _ in range(4) for event in page.scrape(("n1", 0, {"gpu_temp_c": 40.0}))] == []


def test_an_active_xid_is_told_when_it_appears() -> None:
    """A gauge for each code, with the code in its label."""
    page = Page()
    page.scrape(("n1", 0, {"xid_active_79": 0.0}))
    [xid] = page.scrape(("n1", 0, {"xid_active_79": 1.0, "xid_last": 79}))
    assert (xid.kind, xid.code) == ("xid", 79)


def test_a_replaced_gpu_begins_anew() -> None:
    """Its counters are not the old one's."""
    page = Page()
    page.scrape(("n1", 0, {"ecc_sbe": 5}), uuid="GPU-old")
    assert page.scrape(("n1", 0, {"ecc_sbe": 900}), uuid="GPU-new") == []
    assert len(page.scrape(("n1", 0, {"ecc_sbe": 901}), uuid="GPU-new")) == 1


def test_a_gpu_that_vanishes_is_missing_once_and_returns_once() -> None:
    """One gap is no loss; the counters go on where they were."""
    page = Page()
    both = (("n1", 0, {}), ("n1", 1, {"ecc_sbe": 1.0}))
    page.scrape(*both)
    assert page.scrape(both[0]) == []
    assert page.scrape(*both) == []
    found = [event for _ in range(MISSES + 3) for event in page.scrape(both[0])]
    assert kinds(found) == [("n1", "gpu_missing")]
    assert (found[0].severity, found[0].cause, found[0].device.index) == ("warning", "unknown", 1)
    assert kinds(page.scrape(both[0], ("n1", 1, {"ecc_sbe": 2.0}))) == [("n1", "gpu_returned"), ("n1", "ecc_sbe")]


def test_a_page_without_any_gpu_means_that_they_are_missing() -> None:
    """The exporter answers, and sees none."""
    page = Page()
    page.scrape(("n1", 0, {}), ("n1", 1, {}))
    found = page.scrape() + page.scrape() + page.scrape()
    assert kinds(found) == [("n1", "gpu_missing"), ("n1", "gpu_missing")]
    assert found[0].time == page.time - timedelta(seconds=15)


def test_a_node_gone_from_a_page_of_many_is_one_event() -> None:
    """Its exporter is down: of its GPUs nothing is known, so none is missing."""
    page = Page()
    page.scrape(("n1", 0, {}), ("n2", 0, {"ecc_sbe": 1.0}), ("n2", 1, {}))
    found = [event for _ in range(5) for event in page.scrape(("n1", 0, {}))]
    assert kinds(found) == [("n2", "exporter_down")]
    back = page.scrape(("n1", 0, {}), ("n2", 0, {"ecc_sbe": 1.0}))
    assert kinds(back) == [("n2", "exporter_up")]
    assert kinds(page.scrape(("n1", 0, {}), ("n2", 0, {}))) == [("n2", "gpu_missing")]


def test_one_page_without_a_node_is_no_event() -> None:
    """A gap of the collector in between."""
    page = Page()
    page.scrape(("n1", 0, {}), ("n2", 0, {}))
    assert page.scrape(("n1", 0, {})) == []
    assert page.scrape(("n1", 0, {}), ("n2", 0, {})) == []
    assert page.scrape(("n1", 0, {})) == []


def test_equal_increases_at_other_moments_are_other_events() -> None:
    """Ids differ by time, and are the same for the same page."""
    page = Page()
    page.scrape(("n1", 0, {"ecc_sbe": 1}))
    first = page.scrape(("n1", 0, {"ecc_sbe": 2}))
    second = page.scrape(("n1", 0, {"ecc_sbe": 3}))
    assert first[0].id != second[0].id


def test_a_device_that_is_no_accelerator_is_missing_under_its_name() -> None:
    """An adapter, a disk; of every maker a GPU is a GPU."""
    page = Page()
    both = (("mlx5_0", {"symbol_error": 1.0}), ("mlx5_1", {"symbol_error": 1.0}))
    where = {"type": "hca", "port": 1, "source": "node_exporter"}
    page.scrape_any(*both, **where)
    found = [event for _ in range(3) for event in page.scrape_any(both[0], **where)]
    assert [(one.kind, one.source, one.device.port, one.name()) for one in found] == [
        ("device_missing", "node_exporter", 1, "mlx5_1")
    ]
    assert [event.kind for event in page.scrape_any(*both, **where)] == ["device_returned"]
    npus = Page()
    for _ in range(2):
        npus.watch.add([Sample(NOON, "n1", npu, {}, type="npu", source="npu") for npu in (0, 1)], NOON)
    found = [event for _ in range(2) for event in npus.watch.add([Sample(NOON, "n1", 0, {}, type="npu")], NOON)]
    assert [(one.kind, one.source, one.device.type, one.message) for one in found] == [
        ("gpu_missing", "npu", "npu", "NPU 1 is no longer reported")
    ]


def test_a_value_that_vanishes_is_one_event_of_the_node_and_returns_once() -> None:
    """However many of its devices lack it; one gap is no loss."""
    page = Page()
    whole = [("n1", gpu, {"gpu_temp_c": 50.0, "power_w": 9.0}) for gpu in range(8)]
    without = [("n1", gpu, {"power_w": 9.0}) for gpu in range(8)]
    page.scrape(*whole)
    assert page.scrape(*without) == []
    assert page.scrape(*whole) == []
    gone = [event for _ in range(5) for event in page.scrape(*without)]
    assert [(one.kind, one.attributes["metric"], one.attributes["devices"]) for one in gone] == [
        ("metric_missing", "gpu_temp_c", 8)
    ]
    assert page.scrape(*whole[:7], without[7]) == []
    assert kinds(page.scrape(*whole)) == [("n1", "metric_returned")]
    assert page.scrape(*whole) == []


def test_a_value_that_one_device_lacks_names_it() -> None:
    """The driver does not answer for one GPU."""
    page = Page()
    page.scrape(("n1", 0, {"a": 1}), ("n1", 1, {"a": 1}))
    found = [event for _ in range(3) for event in page.scrape(("n1", 0, {"a": 1}), ("n1", 1, {}))]
    assert [(one.kind, one.device.index) for one in found] == [("metric_missing", 1)]


def test_values_of_a_device_that_is_gone_are_not_missing() -> None:
    """The device is, and that is told."""
    page = Page()
    page.scrape(("n1", 0, {"a": 1}), ("n1", 1, {"b": 1}))
    assert kinds([one for _ in range(4) for one in page.scrape(("n1", 0, {"a": 1}))]) == [("n1", "gpu_missing")]


def test_a_code_that_is_there_while_something_is_wrong_may_go() -> None:
    """The second error code of an NPU is a series of its own while there is one."""
    page = Page()
    page.scrape(("n1", 0, {"error_code": 1, "error_code_1": 2}))
    found = [one for _ in range(4) for one in page.scrape(("n1", 0, {"error_code": 1}))]
    assert [(one.kind, one.code) for one in found] == [("ascend_fault_cleared", 2)]


def test_a_fault_code_of_an_npu_is_an_event_with_its_end() -> None:
    """It is shown while it lasts: at the first look, too."""
    page = Page()
    separate, unknown = 0x80818C00, 0x80E0FFF1
    [event] = page.scrape_any((None, {"error_code": separate}), type="npu", source="npu")
    assert (event.kind, event.code, event.severity, event.action) == ("ascend_fault", separate, "fatal", "drain_node")
    assert event.attributes == {"fault_code": "80818C00"}
    assert event.message.startswith("Fault code 80818C00: ")
    both = {"error_code": separate, "error_code_1": unknown}
    [second] = page.scrape_any((None, both), type="npu", source="npu")
    assert (second.attributes["fault_code"], second.severity) == ("80E0FFF1", "warning")
    assert page.scrape_any((None, both), type="npu", source="npu") == []
    over = [one for _ in range(3) for one in page.scrape_any((None, {"error_code": 0}), type="npu", source="npu")]
    assert sorted((one.kind, one.code, one.severity) for one in over) == [
        ("ascend_fault_cleared", separate, "info"),
        ("ascend_fault_cleared", unknown, "info"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "kind", "severity", "action"),
    [
        ("afid_fatal_0", 18, "gpu_afid", "error", "reset_gpu"),
        ("afid_fatal_0", 19, "gpu_afid", "error", "replace_part"),
        ("afid_non_fatal_corrected_1", 24, "gpu_afid", "info", "none"),
        ("afid_non_fatal_uncorrected_0", 55, "gpu_afid", "error", "reset_gpu"),
        ("mlu_xid_last", 14, "mlu_xid", "fatal", "reboot_node"),
        ("mlu_xid_last", 3, "mlu_xid", "warning", "watch"),
    ],
)
def test_a_code_of_the_last_event_is_told_when_it_changes(
    name: str, value: int, kind: str, severity: str, action: str
) -> None:
    """Once; what stood there at first may be old, and is no fault of now."""
    page = Page()
    page.scrape(("n1", 0, {"gpu_temp_c": 50}))
    [event] = page.scrape(("n1", 0, {"gpu_temp_c": 50, name: value}))
    assert (event.kind, event.code, event.severity, event.action) == (kind, value, severity, action)
    assert "after" in event.attributes
    assert [one for _ in range(3) for one in page.scrape(("n1", 0, {"gpu_temp_c": 50, name: value}))] == []
    [old] = Page().scrape(("n1", 0, {name: value}))
    assert old.severity in ("info", "warning")
    assert old.attributes["age"] == "unknown"


def test_an_mlu_s_xid_is_not_read_as_nvidias() -> None:
    """NVIDIA's 14 is for information, and its 8 a program's."""
    page = Page()
    page.scrape(("n1", 0, {"mlu_xid_last": 0}))
    found = [one for code in (8, 14) for one in page.scrape(("n1", 0, {"mlu_xid_last": code}))]
    assert [(one.kind, one.code, one.cause) for one in found] == [
        ("mlu_xid", 8, "hardware"),
        ("mlu_xid", 14, "hardware"),
    ]


def test_an_accelerator_that_its_exporter_calls_not_well_is_an_event_with_its_end() -> None:
    """Of an NPU, an MLU and an AMD GPU alike; at the first look, too."""
    page = Page()
    [event] = page.scrape_any((None, {"healthy": 0}), type="npu", source="npu")
    assert (event.kind, event.severity, event.action) == ("accelerator_health", "error", "run_diagnostics")
    assert page.scrape_any((None, {"healthy": 0}), type="npu", source="npu") == []
    [over] = page.scrape_any((None, {"healthy": 1}), type="npu", source="npu")
    assert (over.kind, over.severity) == ("accelerator_health", "info")
    assert meaning_of(over).cures == ("gpu_fault",)
    assert Page().scrape_any((None, {"healthy": 1}), type="npu", source="npu") == []


@pytest.mark.parametrize(
    ("measure", "down", "up"),
    [
        ("link_up", ("link_down", "error"), ("link_up", "info")),
        ("network_healthy", ("link_degraded", "warning"), ("link_restored", "info")),
        ("driver_running", ("accelerator_health", "error"), ("accelerator_health", "info")),
    ],
)
def test_an_npu_s_network_and_a_driver_that_stops_are_events(
    measure: str, down: tuple[str, str], up: tuple[str, str]
) -> None:
    """When they change."""
    page = Page()
    page.scrape_any((None, {measure: 1}), type="npu", source="npu")
    [lost] = page.scrape_any((None, {measure: 0}), type="npu", source="npu")
    [back] = page.scrape_any((None, {measure: 1}), type="npu", source="npu")
    assert [(one.kind, one.severity) for one in (lost, back)] == [down, up]


def test_a_link_s_rise_stands_for_that_of_its_total() -> None:
    """It tells more, and both are one error."""
    page = Page()
    page.scrape(("n1", 0, {"nvlink_crc": 0, "nvlink_crc_l3": 0, "nvlink_replay": 0}))
    found = page.scrape(("n1", 0, {"nvlink_crc": 2, "nvlink_crc_l3": 2, "nvlink_replay": 1}))
    assert [one.attributes["counter"] for one in found] == ["nvlink_crc_l3", "nvlink_replay"]


def test_a_memory_s_error_is_told_by_its_smallest_part() -> None:
    """The controller, its row and its channel count the same errors."""
    page = Page()
    parts = ("mc0", "mc0/csrow2", "mc0/csrow2/ch1", "mc1")
    where = {"type": "dimm", "source": "node_exporter"}
    page.scrape_any(*((name, {"ecc_sbe": 0.0}) for name in parts), **where)
    found = page.scrape_any(*((name, {"ecc_sbe": 1.0}) for name in parts), **where)
    assert [(one.kind, one.severity, one.name()) for one in found] == [
        ("edac", "warning", "mc0/csrow2/ch1"),
        ("edac", "warning", "mc1"),
    ]


def test_the_serial_number_that_an_exporter_tells_is_in_the_events_of_its_device() -> None:
    """The maker asks for it: AMD's and Cambricon's exporters tell it."""
    page = Page()
    page.scrape_any((None, {"ecc_dbe": 0}), type="mlu", source="cambricon", serial="102112300123")
    [event] = page.scrape_any((None, {"ecc_dbe": 1}), type="mlu", source="cambricon", serial="102112300123")
    assert event.attributes["serial"] == "102112300123"

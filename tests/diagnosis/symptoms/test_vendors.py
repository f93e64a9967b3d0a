"""What the faults of AMD's, Huawei's, Cambricon's and Intel's accelerators are symptoms of: the same as NVIDIA's."""

from datetime import UTC, datetime

import pytest

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import Scene
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.symptoms.event_place import place_of_event
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.meaning import meaning_of
from store.records.event import Device, Event
from store.records.fault_catalog import ShownCode, with_kind_meaning, with_shown_code

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "variant", "symptom"),
    [
        ("gpu_ras", "uncorrectable", "gpu_fault"),
        ("gpu_ras", "correctable", None),
        ("gpu_bad_pages", "threshold", "gpu_fault"),
        ("gpu_smu_hang", "", "gpu_fault"),
        ("gpu_reset", "begin", "gpu_follow_on"),
        ("gpu_reset", "succeeded", None),
        ("gpu_reset", "failed", "gpu_fault"),
        ("gpu_page_fault", "", "gpu_program"),
        ("gpu_page_fault", "driver", "driver_fault"),
        ("habana_ecc", "critical", "gpu_fault"),
        ("habana_heartbeat_lost", "link", "gpu_lost"),
        ("ascend_fault", "separate", "gpu_fault"),
        ("ascend_fault", "switch_separate", "port_errors"),
        ("ascend_fault", "restart_business", None),
        ("npu_sdma_error", "", "gpu_fault"),
        ("accelerator_health", "alarm", "gpu_fault"),
        ("accelerator_health", "driver", "driver_fault"),
        ("accelerator_health", "well", None),
        ("npu_core_error", "", "gpu_program"),
        ("hccl_rank_stuck", "", "hang"),
        ("disk_controller", "lost", "disk_fault"),
        ("ib_multicast", "", None),
    ],
)
def test_a_fault_of_any_vendor_is_the_symptom_that_it_is(kind: str, variant: str, symptom: str | None) -> None:
    """A reset follows from something; it is the fault of no driver."""
    event = with_kind_meaning(Event(None, "n1", "kernel", kind, device=Device("gpu", pci="0000:65:00.0")), variant)
    assert meaning_of(event).symptom == symptom


@pytest.mark.parametrize("vendor", ["gpu", "npu", "hpu", "mlu"])
def test_a_fault_is_at_its_accelerator_and_not_at_the_node(vendor: str) -> None:
    """By the address that its driver prints."""
    event = Event(None, "n1", "kernel", "gpu_reset", device=Device(vendor, pci="0000:65:00.0"))
    assert str(place_of_event(event, DeviceGraph()).kind) == "gpu"


@pytest.mark.parametrize(
    ("kind", "code", "symptom"),
    [
        ("mlu_xid", 14, "gpu_lost"),
        ("mlu_xid", 15, "gpu_fault"),
        ("mlu_xid", 7, "nvlink_fault"),
        ("mlu_xid", 5, "gpu_program"),
        ("mlu_xid", 12, "driver_fault"),
        ("gpu_afid", 18, "nvlink_fault"),
        ("gpu_afid", 25, "gpu_fault"),
        ("gpu_afid", 24, None),
    ],
)
def test_a_code_of_another_maker_is_the_symptom_that_it_is(kind: str, code: int, symptom: str | None) -> None:
    """By its own table."""
    event = with_shown_code(Event(None, "n1", "amd", kind, device=Device("gpu", index=1)), ShownCode(kind, code))
    assert meaning_of(event).symptom == symptom


@pytest.mark.parametrize(
    ("kind", "code", "type_", "action"),
    [
        ("gpu_afid", 25, "gpu", "reset_gpu"),
        ("gpu_afid", 19, "gpu", "replace_part"),
        ("mlu_xid", 8, "mlu", "run_diagnostics"),
        ("ascend_fault", 0x80818C00, "npu", "drain_node"),
    ],
)
def test_what_a_verdict_asks_for_comes_from_the_makers_own_table(kind: str, code: int, type_: str, action: str) -> None:
    """NVIDIA's Xids 8, 19 and 25 ask for other things."""
    bare = Event(NOON, "n1", "amd", kind, device=Device(type_, index=1), id="e1")
    fold = SymptomFold(DeviceGraph())
    fold.take([with_shown_code(bare, ShownCode(kind, code))])
    (first, *_) = [one for one in explain(Scene(NOON, fold.symptoms(), DeviceGraph())) if one.cause_class == "gpu"]
    assert (first.action, first.device.type, first.device.index) == (action, type_, 1)

"""What the faults of AMD's, Huawei's and Intel's accelerators are symptoms of: the same as NVIDIA's."""

import pytest

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.symptoms.event_place import place_of_event
from diagnosis.symptoms.meaning import meaning_of
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning


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


@pytest.mark.parametrize("vendor", ["gpu", "npu", "hpu"])
def test_a_fault_is_at_its_accelerator_and_not_at_the_node(vendor: str) -> None:
    """By the address that its driver prints."""
    event = Event(None, "n1", "kernel", "gpu_reset", device=Device(vendor, pci="0000:65:00.0"))
    assert str(place_of_event(event, DeviceGraph()).kind) == "gpu"

"""PCIe: AER, containment, degraded links, slots, lost devices, IOMMU faults."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.pcie import PCIE
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of lines of one second."""
    return list(parse(KernelParser(Context()), lines))


@pytest.mark.parametrize(
    ("message", "pci", "severity", "told"),
    [
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008", "0000:00:01.0", "fatal", "fatal"),
        (
            "pcieport 0000:00:1c.0: AER: Multiple Corrected error received: id=00e0",
            "0000:00:1c.0",
            "warning",
            "correctable",
        ),
        (
            "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
            "0000:00:1c.0",
            "warning",
            "correctable",
        ),
        (
            "pcieport 0000:00:1d.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:00:1d.0",
            "0000:00:1d.0",
            "error",
            "nonfatal",
        ),
        (
            "pcieport 0000:00:1c.4: AER: Correctable error message received from 0000:07:00.0",
            "0000:00:1c.4",
            "warning",
            "correctable",
        ),
        (
            "pcieport 0000:00:1c.4: AER: Uncorrectable (Fatal) error message received from 0000:07:00.0",
            "0000:00:1c.4",
            "fatal",
            "fatal",
        ),
        (
            "pcieport 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
            "0000:07:00.0",
            "warning",
            "correctable",
        ),
        (
            "igb 0000:09:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
            "0000:09:00.0",
            "error",
            "nonfatal",
        ),
        (
            "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=00e0(Transmitter ID)",
            "0000:00:1c.0",
            "warning",
            "correctable",
        ),
        (
            "pcieport 0000:50:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal)",
            "0000:50:00.0",
            "fatal",
            "fatal",
        ),
        (
            "PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
            None,
            "fatal",
            "fatal",
        ),
        (
            "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)",
            "0000:3b:00.0",
            "fatal",
            "fatal",
        ),
        (
            "pcieport 10000:e0:06.0: AER: Corrected error received: 10000:e0:06.0",
            "10000:e0:06.0",
            "warning",
            "correctable",
        ),
    ],
)
def test_an_error_is_as_grave_as_the_bus_says(message: str, pci: str | None, severity: str, told: str) -> None:
    """Releases from 6.12 on write correctable where older ones write corrected."""
    event = PCIE.decode(message)
    assert event is not None
    assert (event.kind, event.device.pci, event.severity, event.attributes["severity"]) == (
        "pcie_aer",
        pci,
        severity,
        told,
    )


@pytest.mark.parametrize(
    ("message", "attributes"),
    [
        ("pcieport 0000:00:01.0:   device [8086:1901] error status/mask=00004000/00000000", {"status": "00004000", "mask": "00000000"}),
        ("pcieport 0000:00:1c.5: AER:   device [8086:a295] error status/mask=00000001/00002000", {"vendor_device": "8086:a295"}),
        ("pcieport 0000:00:01.0:    [14] Completion Timeout     (First)", {"bit": "14", "error": "Completion Timeout"}),
        ("pcieport 0000:00:06.0:    [ 0] RxErr                  (First)", {"bit": "0", "error": "RxErr"}),
        ("pcieport 0000:00:1c.0:    [12] Replay Timer Timeout  ", {"bit": "12", "error": "Replay Timer Timeout"}),
        ("igb 0000:09:00.0: AER:    [14] CmpltTO", {"error": "CmpltTO"}),
        ("nvme 0000:41:00.0: aer_status: 0x00000001, aer_mask: 0x00000000", {"status": "00000001"}),
        ("nvme 0000:41:00.0: AER: aer_layer=Physical Layer, aer_agent=Receiver ID", {"layer": "Physical Layer"}),
    ],
)  # fmt: skip
def test_a_detail_alone_is_a_notice(message: str, attributes: dict[str, str]) -> None:
    """It opens no incident."""
    event = PCIE.decode(message)
    assert event is not None
    assert (event.kind, event.severity) == ("pcie_aer_detail", "info")
    assert attributes.items() <= event.attributes.items()


def test_one_error_told_in_four_lines_is_one_event_of_the_device_that_failed() -> None:
    """The port reports it; the device that the report names had it."""
    (event,) = decode(
        "[    9.000001] pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0",
        "[    9.000002] nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "[    9.000003] nvidia 0000:3b:00.0:   device [10de:2330] error status/mask=00000001/0000a000",
        "[    9.000004] nvidia 0000:3b:00.0:    [ 0] RxErr                  (First)",
    )
    assert (event.kind, event.severity, event.line) == ("pcie_aer", "warning", 1)
    assert (event.device.type, event.device.pci) == ("gpu", "0000:3b:00.0")
    assert event.attributes["reported_by"] == "0000:3a:00.0"
    assert (event.attributes["layer"], event.attributes["error"], event.attributes["bit"]) == (
        "Physical Layer",
        "RxErr",
        "0",
    )


def test_a_source_printed_as_a_number_is_the_device() -> None:
    """id=3b08 is bus 3b, device 01, function 0."""
    (event,) = decode(
        "[    9.000001] pcieport 0000:3a:00.0: AER: Uncorrected (Non-Fatal) error received: id=3b08",
        "[    9.000002] mlx5_core 0000:3b:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, id=3b08(Requester ID)",
    )
    assert (event.device.pci, event.device.type, event.severity) == ("0000:3b:01.0", "hca", "error")


@pytest.mark.parametrize(
    "second",
    [
        "nvidia 0000:9a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Physical Layer, (Receiver ID)",
        "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0",
    ],
)
def test_another_error_is_an_event_of_its_own(second: str) -> None:
    """Of another device, of another severity, or reported again."""
    first = "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0"
    assert len(decode(f"[    9.000001] {first}", f"[    9.000002] {second}")) == 2


def test_details_of_another_device_stay_apart() -> None:
    """Two devices may fail at once."""
    events = decode(
        "[    9.000001] nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "[    9.000002] nvidia 0000:9a:00.0:    [ 0] RxErr",
    )
    assert {event.kind for event in events} == {"pcie_aer", "pcie_aer_detail"}


@pytest.mark.parametrize(
    ("limit", "now", "capable"),
    [
        ("32.0 GT/s PCIe x8 link at 0000:97:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)", 8, 16),
        ("5 GT/s x4 link at 0000:00:00.0 (capable of 63.008 Gb/s with 8 GT/s x8 link)", 4, 8),
        ("Unknown x1 link at 0000:00:00.0 (capable of 63.008 Gb/s with 8 GT/s x8 link)", 1, 8),
    ],
)
def test_a_narrow_link_tells_both_widths(limit: str, now: int, capable: int) -> None:
    """And where the narrow place is."""
    event = PCIE.decode(f"mlx5_core 0000:9c:00.0: 16.000 Gb/s available PCIe bandwidth, limited by {limit}")
    assert event is not None
    assert (event.kind, event.device.pci, event.severity) == ("pcie_degraded", "0000:9c:00.0", "warning")
    assert (event.attributes["width_now"], event.attributes["width_capable"]) == (now, capable)
    assert str(event.attributes["at"]).startswith("0000:")


@pytest.mark.parametrize(
    ("message", "kind", "severity"),
    [
        ("pcieport 0000:80:03.1: AER: device recovery failed", "pcie_recovery", "fatal"),
        ("pcieport 0000:80:03.1: AER: device recovery successful", "pcie_recovery", "info"),
        ("pcieport 0000:80:03.1: AER: Device successful recovery", None, None),
        ("nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)", "pcie_recovery", "fatal"),
        ("pcieport 0000:00:1b.0: DPC: containment event, status:0x1f01 source:0x0000", "pcie_dpc", "error"),
        ("pcieport 0000:00:1b.0: DPC: ERR_FATAL detected", "pcie_dpc_detail", "info"),
        ("pcieport 0000:17:01.0: pciehp: Slot(1): Link Down", "pcie_slot", "error"),
        ("pcieport 0000:17:01.0: pciehp: Slot(1): Power fault", "pcie_slot", "error"),
        ("pciehp 0000:17:01.0:pcie004: Slot(1-2): Card not present", "pcie_slot", "error"),
        ("pcieport 0000:17:01.0: pciehp: Slot(1): Link Up", "pcie_slot", "info"),
        (
            "nvidia 0000:3b:00.0: can't change power state from D3cold to D0 (config space inaccessible)",
            "pcie_device_lost",
            "error",
        ),
        (
            "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "pcie_device_lost",
            "error",
        ),
        ("nvidia 0000:3b:00.0: Refused to change power state, currently in D3", "pcie_device_lost", "error"),
        ("vfio-pci 0000:3b:00.0: not ready 65535ms after FLR; giving up", "pcie_device_lost", "error"),
        (
            "DMAR: [DMA Write] Request device [02:00.0] fault addr ffff0000 [fault reason 05] PTE Write access is not set",
            "iommu_fault",
            "warning",
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=c1:00.0 domain=0x0000 address=0xdf800000 flags=0x0050]",
            "iommu_fault",
            "warning",
        ),
        ("arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:", "iommu_fault", "warning"),
        ("arm-smmu-v3 arm-smmu-v3.0.auto: event 0x0a received:", None, None),
        ("pcieport 0000:00:01.0: AER: enabled with IRQ 34", None, None),
        ("pcieport 0000:17:01.0: pciehp: Slot(1): Card present", None, None),
        ("pcieport 0000:17:01.0: pciehp: Slot(1): Link Down/Up ignored (recovered by DPC)", None, None),
        ("mlx5_core 0000:41:00.1: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)", None, None),
        ("nvidia 0000:3b:00.0: not ready 1023ms after FLR; waiting", None, None),
        ("monitor: saw PCIe Bus Error: severity=Corrected", None, None),
    ],
)
def test_the_rest_of_the_bus(message: str, kind: str | None, severity: str | None) -> None:
    """Faults, recoveries, and what only sounds like one."""
    event = PCIE.decode(message)
    assert (event and event.kind, event and event.severity) == (kind, severity)


def test_a_containment_bears_its_reason() -> None:
    """Two lines."""
    (event,) = decode(
        "[   50.947816] pcieport 0000:00:1b.0: DPC: containment event, status:0x1f01 source:0x0000",
        "[   50.947817] pcieport 0000:00:1b.0: DPC: unmasked uncorrectable error detected",
    )
    assert (event.kind, event.attributes["error"]) == ("pcie_dpc", "unmasked uncorrectable error")


@pytest.mark.parametrize(
    ("message", "kind", "pci", "told"),
    [
        ("pcieport 0015:00:00.0: DPC: containment event, status:0x200d, ERR_FATAL received from 0015:01:00.0", "pcie_dpc", "0015:00:00.0", {"error": "ERR_FATAL", "source": "0015:01:00.0"}),
        ("pcieport 0000:30:03.0: DPC: containment event, status:0x1f01: unmasked uncorrectable error detected", "pcie_dpc", "0000:30:03.0", {"status": "0x1f01"}),
        ("DMAR: [DMA Read NO_PASID] Request device [0x3b:0x02.0] fault addr 0x3a80000 [fault reason 0x06] PTE", "iommu_fault", "0000:3b:02.0", {"address": "0x3a80000"}),
    ],
)  # fmt: skip
def test_the_wording_of_newer_kernels(message: str, kind: str, pci: str, told: dict[str, str]) -> None:
    """Who sent a fatal error, what the port met itself, an address with 0x."""
    event = PCIE.decode(message)
    assert event is not None
    assert (event.kind, event.device.pci) == (kind, pci)
    assert told.items() <= event.attributes.items()

"""The PCIe bus: errors that it reports (AER), links narrower than they could be, devices that leave it.

    pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008
    pcieport 0000:00:01.0:   device [8086:1901] error status/mask=00004000/00000000
    pcieport 0000:00:01.0:    [14] Completion Timeout     (First)
    -> one Event(kind="pcie_aer", severity="fatal", device=Device("pci", pci="0000:00:01.0"),
                 attributes={"severity": "fatal", "error": "Completion Timeout", ...})

Forms: drivers/pci/pcie/aer.c, dpc.c, drivers/pci/pci.c, drivers/pci/hotplug/pciehp_*.c, drivers/iommu of Linux
3.10 to 6.16.
"""

from dataclasses import replace

from parsers.kernel_messages.family import PCI_DEVICE, MessageFamily, MessageForm, decoder, signs
from store.records.event import Attribute, Event, canonical_pci

_SEVERITY = r"(?P<severity>(?:Uncorrect(?:ed|able) \((?:Non-)?Fatal\)|Correct(?:ed|able)))"
# How the record calls what the kernel calls a severity; releases from 6.12 on say "correctable".
_SEVERITIES = {
    f"{word}{ending}{rest}": name
    for ending in ("ed", "able")
    for word, rest, name in (
        ("correct", "", "correctable"),
        ("uncorrect", " (non-fatal)", "nonfatal"),
        ("uncorrect", " (fatal)", "fatal"),
    )
}
_AER = rf"{PCI_DEVICE}(?:AER:? )?"
_WIDTH = r"(?P<speed_{0}>[\d.]{{1,8}} GT/s|Unknown)(?: PCIe)? x(?P<width_{0}>\d{{1,3}}) link"

PCIE_FORMS = (
    # Not "AER: ": each port says so at every boot.
    *(
        MessageForm(
            sign,
            rf"{PCI_DEVICE}AER: (?P<multiple>Multiple )?{_SEVERITY} error (?:received: |message received from )(?:id=)?"
            r"(?P<source>[0-9a-f:.]{1,20})",
            "pcie_aer",
            device="",
            by="severity",
            words=_SEVERITIES,
        )
        for sign in ("error received: ", "error message received from ")
    ),
    MessageForm(
        "PCIe Bus Error: ",
        rf"(?:{PCI_DEVICE})?(?:AER:? )?PCIe Bus Error: severity={_SEVERITY}(?:, type=(?P<layer>[\w ]{{1,40}}))?,? ?"
        r"(?:id=[0-9a-f]{1,8})?\(?(?P<agent>[\w ]{0,40})\)?",
        "pcie_aer",
        device="",
        by="severity",
        words=_SEVERITIES,
    ),
    MessageForm(
        "error status/mask=",
        rf"{_AER} *device \[(?P<vendor_device>[0-9a-f]{{4}}:[0-9a-f]{{4}})\] error status/mask="
        r"(?P<status>[0-9a-f]{8})/(?P<mask>[0-9a-f]{8})",
        "pcie_aer_detail",
        device="",
    ),
    MessageForm(
        ":    [",
        rf"{_AER} {{1,6}}\[ ?(?P<bit>\d{{1,2}})\] (?P<error>[A-Za-z][\w /-]{{1,40}}?)(?: +\(First\))? *$",
        "pcie_aer_detail",
        device="",
    ),
    MessageForm(
        "aer_status: 0x",
        rf"{_AER}aer_status: 0x(?P<status>[0-9a-f]{{1,8}}), aer_mask: 0x(?P<mask>[0-9a-f]{{1,8}})",
        "pcie_aer_detail",
        device="",
    ),
    MessageForm(
        "aer_layer=",
        rf"{_AER}aer_layer=(?P<layer>[\w ]{{1,40}}), aer_agent=(?P<agent>[\w ]{{1,40}})",
        "pcie_aer_detail",
        device="",
    ),
    MessageForm(
        "AER: device ",
        rf"{PCI_DEVICE}AER: device (?P<state>recovery failed|recovery successful|successful recovery)",
        "pcie_recovery",
        device="",
        by="state",
        words={"recovery failed": "failed", "recovery successful": "recovered", "successful recovery": "recovered"},
    ),
    # The device's driver has no part in it, so its port's recovery fails: the port is named in a line of its own.
    MessageForm(
        "can't recover (no error_detected",
        rf"{PCI_DEVICE}(?:AER: )?can't recover \((?P<error>no error_detected callback)\)$",
        "pcie_recovery",
        device="",
        variant="failed",
    ),
    MessageForm(
        "DPC: ",
        rf"{PCI_DEVICE}(?:DPC: ){{1,2}}containment event, status:(?P<status>0x[0-9a-f]{{1,8}}),? source:"
        r"(?P<source>0x[0-9a-f]{1,8})",
        "pcie_dpc",
        device="",
    ),
    # Since Linux 6.16 in one line: who sent the error, or what the port itself met.
    MessageForm(
        "DPC: ",
        rf"{PCI_DEVICE}DPC: containment event, status:(?P<status>0x[0-9a-f]{{1,8}})(?:, (?P<error>ERR_NONFATAL"
        r"|ERR_FATAL) received from (?P<source>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])|: .{1,60} detected)",
        "pcie_dpc",
        device="",
    ),
    MessageForm(
        "DPC: ",
        rf"{PCI_DEVICE}(?:DPC: ){{1,2}}"
        r"(?P<error>unmasked uncorrectable error|ERR_NONFATAL|ERR_FATAL|RP PIO error) detected",
        "pcie_dpc_detail",
        device="",
    ),
    MessageForm(
        "PCIe bandwidth, limited by ",
        rf"{PCI_DEVICE}(?P<bandwidth_now>[\d.]{{1,12}} Gb/s) available PCIe bandwidth, limited "
        rf"by {_WIDTH.format('now')} at (?P<at>[0-9a-f:.]{{7,20}}) \(capable of (?P<bandwidth_capable>[\d.]{{1,12}} "
        rf"Gb/s) with {_WIDTH.format('capable')}\)",
        "pcie_degraded",
        device="",
    ),
    # What the port had is not there at first, or not any more: also said of an empty slot.
    MessageForm(
        "broken device, retraining",
        rf"{PCI_DEVICE}broken device, retraining non-functional downstream link at (?P<speed_now>[\d.]{{1,8}} ?GT/s)",
        "pcie_degraded",
        device="",
        variant="retrained",
    ),
    MessageForm(
        "retraining failed",
        rf"{PCI_DEVICE}retraining (?P<state>failed)$",
        "pcie_degraded",
        device="",
        variant="retrained",
    ),
    MessageForm(
        "Slot(",
        rf"{PCI_DEVICE}(?:pciehp: )?Slot\((?P<slot>[\w-]{{1,24}})\): (?P<state>Link Down|Card not present|Power "
        r"fault|No link|No device found|Link Up)\b(?!/Up ignored)",
        "pcie_slot",
        device="",
        by="state",
    ),
    MessageForm(
        "hange power state",
        rf"{PCI_DEVICE}(?:can't|Unable to|Refused to) change power state(?: from (?P<state>\w{{1,16}}))?[ ,].{{0,80}}?"
        r"(?:device inaccessible|config space inaccessible|currently in D3)",
        "pcie_device_lost",
        device="",
    ),
    MessageForm(
        "; giving up",
        rf"{PCI_DEVICE}not ready (?P<waited_ms>\d{{1,9}})ms after (?P<after>[\w ]{{1,40}}); giving up",
        "pcie_device_lost",
        device="",
    ),
    MessageForm(
        "] Request device [",
        r"DMAR: ?\[(?P<operation>[\w -]{1,40})\] Request device \[(?P<pci>[0-9a-fx:.]{7,16})\](?: PASID \w{1,12})? "
        r"fault addr (?P<address>(?:0x)?[0-9a-f]{1,16})",
        "iommu_fault",
        device="pci",
    ),
    MessageForm(
        "IO_PAGE_FAULT",
        rf"{PCI_DEVICE}AMD-Vi: Event logged \[IO_PAGE_FAULT domain=\w{{1,12}} address=(?P<address>0x[0-9a-f]{{1,16}})",
        "iommu_fault",
        device="",
    ),
    MessageForm(
        "IO_PAGE_FAULT",
        r"AMD-Vi: Event logged \[IO_PAGE_FAULT device=(?P<pci>[0-9a-f:.]{7,12}) domain=\w{1,12} address="
        r"(?P<address>0x[0-9a-f]{1,16})",
        "iommu_fault",
        device="pci",
    ),
    # Of Arm's: a translation, size, access or permission fault; whose it is stands in numbers below it.
    MessageForm(
        "arm-smmu-v3.",
        r"arm-smmu-v3 (?P<name>arm-smmu-v3\.[\w.-]{1,24}): event (?P<error>0x1[0-3]) received:$",
        "iommu_fault",
        device="pci",
    ),
)


def merge(head: Event, later: Event) -> Event | None:
    """An AER report with what else is said of it: the device whose error it is, and the error's name."""
    kind = later.kind.removesuffix("_detail")
    if kind != head.kind or kind not in ("pcie_aer", "pcie_dpc"):
        return None
    known, details = head.attributes, later.attributes
    if later.kind == "pcie_aer":
        if (
            "source" not in known
            or "layer" in known
            or "layer" not in details
            or details["severity"] != known["severity"]
        ):
            return None
        if later.device.pci not in (head.device.pci, _source(head)):
            return None
        attributes = {**known, **details, "reported_by": head.device.pci}
        return replace(head, device=later.device, message=later.message, attributes=attributes)
    if later.device.pci != head.device.pci:
        return None
    added: dict[str, Attribute] = {key: value for key, value in details.items() if key not in known}
    return replace(head, attributes={**known, **added}) if added else head


def _source(head: Event) -> str | None:
    """The address of the device that sent an error: printed whole, or as the 16 bits of a requester id."""
    source, reporter = str(head.attributes["source"]), head.device.pci
    if ":" in source or reporter is None or len(source) > 4:
        return canonical_pci(source)
    number = int(source, 16)
    return canonical_pci(f"{reporter[:4]}:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}")


PCIE = MessageFamily("pcie", signs(PCIE_FORMS), decoder(PCIE_FORMS), merge, heads=frozenset({"pcie_aer", "pcie_dpc"}))

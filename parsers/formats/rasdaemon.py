"""What `ras-mc-ctl --errors` prints of rasdaemon's records: memory, PCIe, processors, adapters, disks of one host.

    1 2026-03-01 04:05:06 +0000 1 Corrected error(s): memory read error at CPU_SrcID#0_MC#1_Chan#0_DIMM#0
      location: 1:0:0:-1, addr 48318382080, grain 5, syndrome 0 err_code:0x0101:0x0091 socket:0 imc:1
    -> {"kind": "edac", "time": "2026-03-01T04:05:06Z", "severity": "warning", "device": {"type": "dimm"},
        "attributes": {"severity": "ce", "dimm": "CPU_SrcID#0_MC#1_Chan#0_DIMM#0", "count": 1, "mc": 1, ...}}

Each row tells by its own form which section it stands in. The records are of the daemon's whole database: old ones
are printed every time. What they mean is what the kernel's own lines of the same faults mean; the summary
(`--summary`) counts without times and gives nothing. Forms: util/ras-mc-ctl.in of mchehab/rasdaemon, run here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event, canonical_pci
from store.records.fault_catalog import kind_meanings, with_kind_meaning

_ROW = re.compile(
    r"\s{0,4}\d{1,10} (?P<day>\d{4}-\d{2}-\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}) (?P<zone>[+-]\d{4}) (?P<rest>\S.*)",
    re.ASCII,
)
_PCI = r"(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_MEMORY = re.compile(
    r"(?P<count>\d{1,9}) (?P<word>Corrected|Uncorrected|Deferred|Fatal) error(?:\(s\)|s)?: (?P<error>.{0,200}?) at "
    r"(?P<dimm>.{1,200}?) location: (?P<mc>\d{1,4}):",
    re.ASCII,
)
_AER = re.compile(
    rf"{_PCI} (?P<word>Corrected|Uncorrected \(Non-Fatal\)|Uncorrected \(Fatal\)) error: (?P<error>.{{1,200}})",
    re.ASCII,
)
_DEVLINK = re.compile(
    rf"error: bus_name=pci, dev_name={_PCI}, driver_name=(?P<driver>\w{{1,40}}), "
    r"reporter_name=(?P<reporter>\w{1,40}), message='(?P<error>[^']{0,300})",
    re.ASCII,
)
_DISK = re.compile(
    r"error: dev=(?P<name>\d{1,5}:\d{1,7}), sector=(?P<sector>\d{1,18}), nr_sector=\d{1,9}, "
    r"error='(?P<error>[^']{1,80})'",
    re.ASCII,
)
_PAGE = re.compile(
    r"error: pfn=(?P<page>0x[0-9a-f]{1,16}), page_type=(?P<target>[\w -]{1,60}), action_result=(?P<state>\w{1,20})",
    re.ASCII,
)
_FIRMWARE = re.compile(
    r"error: type=(?P<section>[\w ]{1,60}), severity=(?P<severity>[a-z]{4,16}), address=(?P<address>0x[0-9a-f]{1,16})",
    re.ASCII,
)
_MACHINE_CHECK = re.compile(r"error: (?P<error>.{1,200}?)(?:, (?:CPU|bank|mcg|mci) .{0,600})?, mcgcap=0x", re.ASCII)
_REGISTER = re.compile(r"\b(?P<name>status|cpu|socketid|bank|addr)=0x(?P<value>[0-9a-f]{1,16})", re.ASCII)
# Registers that say where, and what a record calls them. No machine has so many of any.
_PLACES = {"cpu": "cpu", "bank": "bank", "socketid": "socket"}
_MOST = 2**31
# Bits of a machine check's status register (Intel SDM volume 3, IA32_MCi_STATUS).
_UNCORRECTED, _CONTEXT_CORRUPT = 1 << 61, 1 << 57
_AER_WORDS = {"Corrected": "correctable", "Uncorrected (Non-Fatal)": "nonfatal", "Uncorrected (Fatal)": "fatal"}
# What a health reporter of an adapter stands for: the kernel's own lines have the same two.
_REPORTERS = {"fw": "", "fw_fatal": "fatal"}
_SEVERITIES = {"fatal": "fatal", "recoverable": "recoverable", "corrected": "corrected", "informational": "info"}


class RasdaemonParser:
    """Decodes rows of the output. Holds nothing."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._node = context.node

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of one row: none for headings and for rows of other sections."""
        row = _ROW.match(text)
        event = _decoded(row["rest"]) if row else None
        if row is None or event is None:
            return []
        time = self._stamps.iso(f"{row['day']}T{row['clock']}{row['zone']}")
        return [replace(event, time=time, node=self._node, line=line)]

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []


def _decoded(rest: str) -> Event | None:
    """The event of a row behind its number and time."""
    if match := _MEMORY.match(rest):
        variant = "ce" if match["word"] == "Corrected" else "ue"
        found: dict[str, Attribute] = {"severity": variant, "count": int(match["count"]), "mc": int(match["mc"])}
        found |= {"error": match["error"], "dimm": match["dimm"]}
        return _event("edac", variant, Device(type="dimm"), rest, found)
    if match := _AER.match(rest):
        variant = _AER_WORDS[match["word"]]
        device = Device(type="pci", pci=canonical_pci(match["pci"]))
        return _event("pcie_aer", variant, device, rest, {"severity": variant, "error": match["error"]})
    if match := _DEVLINK.match(rest):
        if match["driver"] != "mlx5_core" or match["reporter"] not in _REPORTERS:
            return None  # a queue that was recovered, and drivers whose reporters mean other things
        device = Device(type="hca", pci=canonical_pci(match["pci"]))
        return _event("mlx5_health", _REPORTERS[match["reporter"]], device, rest, {"error": match["error"]})
    if match := _DISK.match(rest):
        error = match["error"].removesuffix(" error")
        variant = error if ("disk_error", error) in kind_meanings() else ""
        found = {"name": match["name"], "sector": int(match["sector"]), "error": error}
        return _event("disk_error", variant, Device(type="disk"), rest, found)
    if match := _PAGE.match(rest):
        variant = match["state"].lower()
        if ("memory_failure", variant) not in kind_meanings():
            return None
        found = {"page": match["page"], "target": match["target"], "state": variant}
        return _event("memory_failure", variant, Device(type="dimm"), rest, found)
    if match := _FIRMWARE.match(rest):
        variant = _SEVERITIES.get(match["severity"], "info")
        found = {"section": match["section"], "severity": variant, "address": match["address"]}
        return _event("ghes", variant, Device(type="node"), rest, found)
    match = _MACHINE_CHECK.match(rest)
    return _machine_check(match["error"], rest) if match else None


def _machine_check(error: str, rest: str) -> Event:
    """A processor's record, judged by the bits of its status as the kernel's own line of it is."""
    registers = {match["name"]: int(match["value"], 16) for match in _REGISTER.finditer(rest)}
    status = registers.get("status", 0)
    found: dict[str, Attribute] = {"error": error, "status": f"{status:016x}"}
    for name, known in _PLACES.items():
        if registers.get(name, _MOST) < _MOST:
            found[known] = registers[name]
    if "addr" in registers:
        found["address"] = f"{registers['addr']:x}"
    variant = "fatal" if status & _CONTEXT_CORRUPT else "uncorrected" if status & _UNCORRECTED else "corrected"
    return _event("mce", variant, Device(type="cpu"), rest, found)


def _event(kind: str, variant: str, device: Device, rest: str, attributes: Mapping[str, Attribute]) -> Event:
    event = Event(None, None, "rasdaemon", kind, device=device, message=rest.strip()[:500], attributes=attributes)
    return with_kind_meaning(event, variant)


FORMAT = Format(
    name="rasdaemon",
    description="Errors of a host's hardware that rasdaemon recorded: ras-mc-ctl --errors",
    sample="1 2026-03-01 04:05:06 +0000 1 Corrected error(s): memory read error at CPU_SrcID#0_MC#1_Chan#0_DIMM#0 "
    "location: 1:0:0:-1, addr 48318382080, grain 5, syndrome 0 err_code:0x0101:0x0091 socket:0 imc:1 rank:0",
    make=RasdaemonParser,
    testimony="machine",
    recognises=re.compile(
        r"^(?:Memory controller|PCIe AER|MCE|Devlink|Memory failure|Extlog) events:$"
        r"|^\d{1,10} \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2} [+-]\d{4} "
        r"(?:\d{1,9} \w{1,16} error|error: |[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] )",
        re.ASCII,
    ),
)

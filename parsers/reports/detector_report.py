"""Reports of other detectors as events: an Xid of gpud or NVSentinel is an Xid of the kernel log.

    DetectorReport(detector="nvsentinel", check="SysLogsXIDError", codes=("79",), ...)
    -> Event(kind="xid", code=79, severity="fatal", cause="hardware", action="reboot_node", ...,
             attributes={"detector": "nvsentinel", "check": "SysLogsXIDError"})

A kernel message that the detector quotes says most; then an Xid or SXid; then what `catalogs/detectors.csv` knows of
the detector's own name for it. What is none of these is a `health_event`, judged as the detector judged it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache

from parsers.kernel_messages.families.nvswitch import judge_sxid
from parsers.kernel_messages.registry import FAMILIES
from parsers.text.json_fields import MAX_MESSAGE, attributes, whole_of
from store.catalog_rows import rows
from store.records.event import Action, Attribute, Cause, Device, Event, Severity, canonical_pci
from store.records.fault_catalog import sxid, with_kind_meaning, xid

_XID = re.compile(r"\bXID(?:[ _]?ERROR)?[ :_#]{0,3}(?P<code>\d{1,4})(?!\d)", re.IGNORECASE | re.ASCII)
_CODE = re.compile(r"(?:S?XID[_ ]?)?(?P<code>\d{1,5})(?:\.[A-Za-z]\S{0,80})?", re.IGNORECASE | re.ASCII)
_SXID = re.compile(r"S[Xx][Ii][Dd]|(?<![a-z])sxid")
_LINK_DOWN = "link_down"
# NVLink 5 errors: what they mean lies in registers that the detector read and that its report leaves out. Its word for
# the worst is not ours: a GPU that a reset heals is not lost.
_NVLINK5 = range(144, 151)
_DEFAULT_ACTION: Mapping[Severity, Action] = {
    "info": "none",
    "warning": "watch",
    "error": "run_diagnostics",
    "fatal": "drain_node",
}
# What NVSentinel recommends, also where a Kubernetes event carries its report.
NVSENTINEL_ACTIONS: Mapping[str, Action] = {
    "NONE": "none",
    "COMPONENT_RESET": "reset_gpu",
    "CONTACT_SUPPORT": "contact_support",
    "RUN_FIELDDIAG": "run_diagnostics",
    "RUN_DCGMEUD": "run_diagnostics",
    "RESTART_VM": "reboot_node",
    "RESTART_BM": "reboot_node",
    "REPLACE_VM": "drain_node",
    "RESTART_APP": "restart_app",
}


@dataclass(frozen=True, slots=True)
class DetectorFault:
    """What a detector's own name for a fault means to us: a kind and variant, and what it is about."""

    kind: str
    variant: str
    device: str


@dataclass(frozen=True, slots=True)
class DetectorReport:
    """One report of another detector.

    Attributes:
        source: the format that carried it.
        detector: who found it.
        check: the detector's own name for it.
        names: more of its names, narrower ones first, to be looked up before `check`.
        codes: error codes: an Xid's or SXid's number where `family` says so.
        family: `xid` or `sxid`, where the detector says that its code is one.
        severity: as the detector judges it.
        action: what it recommends, in our words.
        quoted: a kernel message that it quotes.
    """

    source: str
    detector: str
    check: str
    severity: Severity
    line: int
    message: str = ""
    healthy: bool = False
    names: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    family: str | None = None
    action: Action | None = None
    quoted: str | None = None
    time: datetime | None = None
    node: str | None = None
    device: Device = field(default_factory=Device)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@cache
def _table() -> Mapping[tuple[str, str], DetectorFault]:
    return {
        (row["detector"], row["check"].lower()): DetectorFault(row["kind"], row["variant"], row["device"])
        for row in rows("detectors")
    }


def fault_named(detector: str, *names: str) -> DetectorFault | None:
    """What the first of a detector's names that the table holds means."""
    return next((found for name in names if (found := _table().get((detector, name.lower())))), None)


def event_of(report: DetectorReport, tables: tuple[str, ...] = ()) -> Event:
    """The event of a report. `tables` are the detectors whose names it may use, beside its own."""
    base = Event(
        time=report.time,
        node=report.node,
        source=report.source,
        kind="health_event",
        severity=report.severity,
        cause="unknown",
        action=report.action or _DEFAULT_ACTION[report.severity],
        device=report.device,
        message=(report.message or report.check)[:MAX_MESSAGE],
        attributes={"detector": report.detector, "check": report.check, **report.attributes},
        line=report.line,
    )
    names = (*report.names, report.check)
    meaning = next((found for table in (report.detector, *tables) if (found := fault_named(table, *names))), None)
    if report.healthy:
        return _healthy(base, meaning)
    if report.quoted and (fault := kernel_fault(report.quoted)):
        return _quoting(base, fault)
    if (code := _code_of(report)) is not None:
        return _numbered(base, report, code)
    return base if meaning is None else _meaning(base, meaning)


def kernel_fault(message: str) -> Event | None:
    """The fault that a kernel message tells, wherever in it the driver's words begin; None for none."""
    for family in FAMILIES:
        if any(sign in message for sign in family.signs):
            begin = message.find("NVRM: ")
            fault = family.decode(message) or (family.decode(message[begin:]) if begin > 0 else None)
            if fault is not None and not fault.kind.endswith("_detail") and fault.kind != "gpu_map":
                return fault
    return None


def xid_in(text: str) -> int | None:
    """The Xid that a text names, as detectors write it: `XID 79 (...)`, `Xid_79`, `NvidiaXID79Error`."""
    match = _XID.search(text.replace("NvidiaXID", "XID "))
    return int(match["code"]) if match and int(match["code"]) else None


def _code_of(report: DetectorReport) -> int | None:
    """The number of an Xid or SXid."""
    if report.family is None:
        return None
    found = (_CODE.fullmatch(code.strip()) for code in report.codes)
    number = next((int(match["code"]) for match in found if match), None)
    return number or (xid_in(report.message) if report.family == "xid" else None)


def _numbered(base: Event, report: DetectorReport, code: int) -> Event:
    """An Xid or SXid, judged by our table; by the detector where the table does not know it, or too little."""
    family = report.family or "xid"
    if family == "sxid":
        fault = sxid(code)
        printed = "fatal" if report.severity == "fatal" else "non-fatal"
        severity, action = judge_sxid(fault, printed) if fault else (base.severity, base.action)
    else:
        fault = xid(code)
        severity, action = (fault.severity, fault.action) if fault else (base.severity, base.action)
        if code in _NVLINK5 and severity == "warning" and base.severity in ("error", "fatal"):
            severity, action = "error", base.action
    device = base.device
    if family == "sxid" and device.type in ("node", "gpu"):  # a GPU beside it is the switch's neighbour
        device = Device("nvswitch", pci=device.pci, port=device.port)
    elif device.type == "node":
        device = replace(device, type="gpu")
    cause: Cause = fault.cause if fault else "unknown"
    return replace(base, kind=family, code=code, severity=severity, cause=cause, action=action, device=device)


def _quoting(base: Event, fault: Event) -> Event:
    """The quoted fault, where and when the detector saw it."""
    device = fault.device
    if base.device.type != "node":
        device = replace(
            base.device,
            type=device.type if device.type != "node" else base.device.type,
            pci=device.pci or base.device.pci,
            port=base.device.port if device.port is None else device.port,
        )
    return replace(
        fault,
        time=base.time,
        node=base.node,
        source=base.source,
        device=device,
        attributes={**base.attributes, **fault.attributes},
        line=base.line,
    )


def _meaning(base: Event, meaning: DetectorFault) -> Event:
    """The kind that the table names, on the device that it is about."""
    device = base.device if base.device.type != "node" else replace(base.device, type=meaning.device)
    return with_kind_meaning(replace(base, kind=meaning.kind, device=device), meaning.variant)


def _healthy(base: Event, meaning: DetectorFault | None) -> Event:
    """A fault that is over: a link is up again, a node is ready again; of others, the detector is content."""
    attributes = {**base.attributes, "state": "healthy"}
    if meaning is not None:
        over = replace(base, attributes=attributes)
        over = (
            with_kind_meaning(replace(over, kind="link_up"), "fabric")
            if meaning.kind == _LINK_DOWN
            else _meaning(over, meaning)
        )
        if over.severity == "info":
            return over
    return replace(base, severity="info", action="none", attributes=attributes)


def family_of(check: str) -> str | None:
    """Whether a check's codes are Xids or SXids. (`SysLogsXIDError` is an Xid's.)"""
    return "sxid" if _SXID.search(check) else "xid" if "XID" in check.upper() else None


def place_of(found: Mapping[str, str], component: str | None) -> tuple[Device, dict[str, Attribute]]:
    """Where NVSentinel's impacted entities are (types in capitals and their values), and what else they tell."""
    gpu = found.get("GPU", "")
    uuid = found.get("GPU_UUID") or (gpu if gpu.startswith("GPU-") else None)
    index = whole_of(gpu)
    pci = canonical_pci(found.get("PCI", ""))
    switch, link = whole_of(found.get("NVSWITCH")), whole_of(found.get("NVLINK"))
    nic, port = found.get("NIC"), whole_of(found.get("NICPORT"))
    more = attributes(switch=switch, link=link, name=nic, gpu_index=index if switch is not None else None)
    if "NVSWITCH" in found:
        return Device("nvswitch", pci=pci, index=switch if pci is None else None, port=link), more
    if nic is not None or port is not None or (component or "").upper() == "NIC":
        return Device("hca", pci=pci, port=port), more
    if pci or uuid or index is not None or (component or "").upper() == "GPU":
        return Device("gpu", pci=pci, index=index, uuid=uuid), more
    return Device(), more

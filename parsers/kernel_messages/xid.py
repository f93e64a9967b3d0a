"""A GPU driver's Xid message: which fault, on which GPU, of which process.

    NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus.
    -> Event(kind="xid", code=79, severity="fatal", cause="hardware", action="reboot_node",
             device=Device("gpu", pci="0000:0f:00.0"), message="GPU has fallen off the bus.",
             attributes={"pid": 1234, "process": "python"})

The driver's form (kernel_rc.c): `NVRM: Xid (PCI:%04x:%02x:%02x GPU-I:%02u GPU-CI:%02u): %d, pid=%s, name=%s, TEXT`,
without the process where none is known. What the text says is read by `xid_fields.py`.
An unknown code stays an event, with cause `unknown`.
An Xid that names the one before it (`caused by previous Xid 149`) is a consequence: `info`, with the other's cause.
"""

import re
from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.nvlink import nvlink_detail
from parsers.kernel_messages.xid_fields import fields_of
from parsers.pci import canonical
from store.catalog import xid
from store.event import Action, Attribute, Device, Event

NVLINK5_CODES = range(144, 151)
RECOVERY_ACTION = 154

_XID = re.compile(
    r"NVRM: {0,8}Xid {0,8}\((?P<where>[^()]{1,80})\) {0,8}: {0,8}(?P<code>\d{1,9})(?:(?:[,.;: ]|$)(?P<rest>.*))?$",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_MIG = re.compile(r"GPU-(?P<kind>I|CI):(?P<id>\d{1,10})", re.ASCII)
_PID = re.compile(r"\s{0,8}pid=(?P<pid>[^,\s]{0,40})(?:,|\s|$)", re.ASCII)
_NAME = re.compile(r"\s{0,8}name=(?P<name>.*?)(?:, |,?$)", re.DOTALL)
# What the driver's texts begin with: a process name may hold commas, so the name ends where one of these follows.
_TEXT = re.compile(
    r"(?:Ch|[Cc]hannel(?: ID)?) (?:0x)?[0-9a-fA-F]{1,8}\b|(?:Graphics|Class Error|Timeout|NVLink|GPU|GSP|An uncorr|"
    r"Row Rem|Bank Rem|Dynamic|DRAM|Contained|Uncontained|MMU|SEC_FAULT|Unrecovered|Marking|Retiring|Unable|Repairing|"
    r"Double Bit|SM |C2C|PMU|CTX SWITCH|[A-Z0-9_/]{3,40}\s{1,4}(?:Fatal|Nonfatal))"
)
# Linux cuts a process name at 15 bytes, the driver at 99.
MAX_NAME = 100
_RECOVERY = re.compile(
    r"changed from (?P<before>0x[0-9a-fA-F]{1,8}) \([^)]*\) to (?P<after>0x[0-9a-fA-F]{1,8}) \((?P<text>[^)]*)\)",
    re.ASCII,
)
# What the driver's recovery action asks for: NVML's nvmlDeviceGpuRecoveryAction_t (nvml.h of driver R570).
_RECOVERY_ACTIONS: dict[int, Action] = {0: "none", 1: "reset_gpu", 2: "reboot_node", 3: "drain_node", 4: "drain_node"}
# Actions that do less than a reset.
_LESS_THAN_RESET: frozenset[Action] = frozenset({"none", "watch", "restart_app", "run_diagnostics"})
_UNKNOWN = frozenset({"", "<unknown>", "'<unknown>'"})


def decode_xid(message: str) -> Event | None:
    """The fault of an Xid message, without time and node; None where it is no Xid message with a code."""
    match = _XID.match(message)
    if not match:
        return None
    code, rest = int(match["code"]), match["rest"] or ""
    attributes: dict[str, Attribute] = {}
    where = _where(match["where"], attributes)
    pci = canonical(where)
    if code == 0 or not (pci or where[:4].upper() == "PCI:"):
        return None
    text = _process(rest, attributes)
    fault = xid(code)
    event = Event(
        time=None,
        node=None,
        source="kernel",
        kind="xid",
        code=code,
        severity=fault.severity if fault else "warning",
        cause=fault.cause if fault else "unknown",
        action=fault.action if fault else "run_diagnostics",
        device=Device(type="gpu", pci=pci),
        message=text or (fault.description if fault else f"Xid {code}"),
        attributes=attributes,
    )
    return _refine(event, text, attributes) if text else event


def _where(text: str, attributes: dict[str, Attribute]) -> str:
    """The address of what stands in the brackets; the MIG instances beside it become attributes."""
    if " " not in text:
        return text
    address = []
    for word in text.split():
        if found := _MIG.fullmatch(word):
            attributes["mig_gi" if found["kind"] == "I" else "mig_ci"] = int(found["id"])
        else:
            address.append(word)
    return "".join(address)


def _refine(event: Event, text: str, attributes: dict[str, Attribute]) -> Event:
    """What the text adds to the catalogue's reading. `attributes` are the event's own."""
    code = event.code or 0
    if code in NVLINK5_CODES and (detail := nvlink_detail(code, text)):
        attributes |= detail.attributes()
        return detail.judge(event)
    if code == RECOVERY_ACTION and (match := _RECOVERY.search(text)):
        after = int(match["after"], 16)
        attributes |= {
            "recovery_from": match["before"],
            "recovery_to": match["after"],
            "recovery_to_text": match["text"],
        }
        severity = "info" if after == 0 else event.severity
        return replace(event, severity=severity, action=_RECOVERY_ACTIONS.get(after, event.action))
    attributes |= fields_of(text)
    caused_by = attributes.get("caused_by")
    if isinstance(caused_by, int):
        former = xid(caused_by)
        return replace(event, severity="info", cause=former.cause if former else event.cause, action="none")
    if attributes.get("reset_required") and event.action in _LESS_THAN_RESET:
        return replace(event, action="reset_gpu")
    return event


def _process(rest: str, attributes: dict[str, Attribute]) -> str:
    """Takes pid and name off the front; what stays is the message."""
    if match := _PID.match(rest):
        pid = match["pid"].strip("'\"")
        if pid.isdigit() and len(pid) < 12:
            attributes["pid"] = int(pid)
        rest = rest[match.end() :]
    if match := _NAME.match(rest):
        name, text = match["name"], rest[match.end() :]
        if text and not _TEXT.match(text):
            name, text = _name_with_commas(rest, match.start("name")) or (name, text)
        if name not in _UNKNOWN:
            attributes["process"] = name
        rest = text
    return rest.strip()


def _name_with_commas(rest: str, start: int) -> tuple[str, str] | None:
    """The name that ends where one of the driver's texts begins, and that text; None where none does."""
    end = start
    while (end := rest.find(", ", end, start + MAX_NAME)) >= 0:
        if _TEXT.match(rest, end + 2):
            return rest[start:end], rest[end + 2 :]
        end += 2
    return None


FAMILY = Family(name="xid", signs=("NVRM: Xid", "Xid (PCI:", "xid (", "XID (PCI:"), decode=decode_xid)

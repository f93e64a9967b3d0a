"""A GPU driver's Xid message: which fault, on which GPU, of which process.

    NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus.
    -> Event(kind="xid", code=79, severity="fatal", cause="hardware", action="reboot_node",
             device=Device("gpu", pci="0000:0f:00.0"), message="GPU has fallen off the bus.",
             attributes={"pid": 1234, "process": "python"})

An unknown code stays an event, with cause `unknown`.
"""

import re
from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.nvlink import nvlink_detail
from parsers.pci import canonical
from store.catalog import xid
from store.event import Action, Attribute, Device, Event

NVLINK5_CODES = range(144, 151)
RECOVERY_ACTION = 154

_XID = re.compile(
    r"NVRM: Xid \((?P<where>[^()]{1,80})\): (?P<code>\d{1,9})(?:(?:,| |$)(?P<rest>.*))?$", re.ASCII | re.DOTALL
)
_MIG = re.compile(r"GPU-(?P<kind>I|CI):(?P<id>\d{1,4})", re.ASCII)
_PID = re.compile(r"\s*pid=(?P<pid>'?[^,\s]*?'?)(?:,|\s|$)", re.ASCII)
_NAME = re.compile(r"\s*name=(?P<name>.*?)(?:, |,?$)", re.DOTALL)
_CHANNEL = re.compile(r"(?:Ch|[Cc]hannel) (?:0x)?(?P<channel>[0-9a-fA-F]{8})\b", re.ASCII)
_CAUSED_BY = re.compile(r"caused by previous Xid (?P<code>\d{1,9})", re.ASCII)
_LINK = re.compile(r"\blink (?P<link>\d{1,4})", re.ASCII)
_RECOVERY = re.compile(
    r"changed from (?P<before>0x[0-9a-fA-F]{1,8}) \([^)]*\) to (?P<after>0x[0-9a-fA-F]{1,8}) \((?P<text>[^)]*)\)",
    re.ASCII,
)
# What the driver's recovery action asks for: NVML's nvmlDeviceGpuRecoveryAction_t (nvml.h of driver R570).
_RECOVERY_ACTIONS: dict[int, Action] = {0: "none", 1: "reset_gpu", 2: "reboot_node", 3: "drain_node", 4: "drain_node"}


def decode_xid(message: str) -> Event | None:
    """The fault of an Xid message, without time and node; None where it is no Xid message with a code."""
    match = _XID.match(message)
    if not match:
        return None
    code, rest = int(match["code"]), match["rest"] or ""
    where, *mig = match["where"].split()
    if code == 0 or not (where.startswith("PCI:") or canonical(where)):
        return None
    attributes: dict[str, Attribute] = {}
    for instance in mig:
        if found := _MIG.fullmatch(instance):
            attributes["mig_gi" if found["kind"] == "I" else "mig_ci"] = int(found["id"])
    text = _process(rest, attributes)
    _channel(text, attributes)
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
        device=Device(type="gpu", pci=canonical(where)),
        message=text or (fault.description if fault else f"Xid {code}"),
        attributes=attributes,
    )
    return _refine(event, text, attributes)


def _refine(event: Event, text: str, attributes: dict[str, Attribute]) -> Event:
    """What the text of some codes adds to the catalogue's reading."""
    code = event.code or 0
    if code in NVLINK5_CODES and (detail := nvlink_detail(code, text)):
        return replace(detail.judge(event), attributes={**attributes, **detail.attributes()})
    if code == RECOVERY_ACTION and (match := _RECOVERY.search(text)):
        after = int(match["after"], 16)
        changed = {"recovery_from": match["before"], "recovery_to": match["after"], "recovery_to_text": match["text"]}
        return replace(
            event,
            severity="info" if after == 0 else event.severity,
            action=_RECOVERY_ACTIONS.get(after, event.action),
            attributes={**attributes, **changed},
        )
    if match := _LINK.search(text):
        attributes["link"] = int(match["link"])
    return event


def _process(rest: str, attributes: dict[str, Attribute]) -> str:
    """Takes pid and name off the front; what stays is the message."""
    if match := _PID.match(rest):
        if match["pid"].isdigit() and len(match["pid"]) < 12:
            attributes["pid"] = int(match["pid"])
        rest = rest[match.end() :]
        if match := _NAME.match(rest):
            if match["name"] not in ("", "<unknown>"):
                attributes["process"] = match["name"]
            rest = rest[match.end() :]
    return rest.strip()


def _channel(text: str, attributes: dict[str, Attribute]) -> None:
    if match := _CHANNEL.match(text):
        attributes["channel"] = f"0x{match['channel'].lower()}"
    if match := _CAUSED_BY.search(text):
        attributes["caused_by"] = int(match["code"])


FAMILY = Family(name="xid", signs=("NVRM: Xid",), decode=decode_xid)

"""An NVSwitch driver's SXid message: which fault, on which switch, at which link.

    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Fatal, Link 46 egress sequence ID error
    -> Event(kind="sxid", code=12020, severity="fatal", device=Device("nvswitch", pci="0000:c1:00.0", port=46),
             message="egress sequence ID error", attributes={"switch": 3, "link": 46})

The driver prints each fault as several lines; the lines of detail (`Severity 1 Engine instance 62 ...`,
`Data {0x...}`) are no faults of their own and give nothing.
"""

import re

from parsers.kernel_messages.family import Family
from parsers.pci import canonical
from store.catalog import Fault, sxid
from store.event import Action, Attribute, Device, Event, Severity

_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d{1,4}): SXid \((?P<where>[^()]{1,80})\): (?P<code>\d{1,9})(?:, *(?P<rest>.*))?$",
    re.ASCII | re.DOTALL,
)
_DETAIL = re.compile(r"Severity \d|Data ?\{", re.ASCII)
_PRINTED = re.compile(r"(?P<severity>Non-fatal|Fatal|Correctable)\b,? *", re.IGNORECASE)
_LINK = re.compile(r"Link (?P<link>\d{1,4}) *", re.ASCII)
_INSTANCE = re.compile(r"\binstance=(?P<instance>\d{1,6})", re.ASCII)


def decode_sxid(message: str) -> Event | None:
    """The fault of an SXid message, without time and node; None for a line of detail or of another form."""
    match = _SXID.match(message)
    if not match:
        return None
    rest, pci = match["rest"] or "", canonical(match["where"])
    if _DETAIL.match(rest) or (pci is None and not match["where"].startswith("PCI:")):
        return None
    printed = _PRINTED.match(rest)
    text = rest[printed.end() :] if printed else rest
    attributes: dict[str, Attribute] = {"switch": int(match["switch"])}
    if link := _LINK.match(text):
        attributes["link"] = int(link["link"])
        text = text[link.end() :]
    if instance := _INSTANCE.search(text):
        attributes["instance"] = int(instance["instance"])
    code = int(match["code"])
    fault = sxid(code)
    severity, action = _judge(fault, printed["severity"].lower() if printed else None)
    return Event(
        time=None,
        node=None,
        source="kernel",
        kind="sxid",
        code=code,
        severity=severity,
        cause=fault.cause if fault else "unknown",
        action=action,
        device=Device(type="nvswitch", pci=pci, port=int(link["link"]) if link else None),
        message=text.strip() or (fault.description if fault else f"SXid {code}"),
        attributes=attributes,
    )


def _judge(fault: Fault | None, printed: str | None) -> tuple[Severity, Action]:
    """Severity and action: the catalogue's, corrected by the word that the driver printed."""
    severity: Severity = fault.severity if fault else "warning"
    action: Action = fault.action if fault else "run_diagnostics"
    if printed == "fatal":
        return "fatal", action if action not in ("none", "watch") else "reset_fabric"
    if printed == "correctable":
        return "info", "watch"
    if printed == "non-fatal" and severity == "fatal":
        return "error", action
    return severity, action


FAMILY = Family(name="sxid", signs=("SXid (",), decode=decode_sxid)

"""An NVSwitch driver's SXid message: which fault, on which switch, at which link.

    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Fatal, Link 46 egress sequence ID error
    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Severity 1 Engine instance 46 Sub-engine instance 00
    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Data {0x00000000, 0x0000002e, ...}
    -> Event(kind="sxid", code=12020, severity="fatal", device=Device("nvswitch", pci="0000:c1:00.0", port=46),
             message="egress sequence ID error", attributes={"switch": 3, "link": 46, "severity_num": 1, ...})

The driver (error_nvswitch.c) prints a fault as a head and lines of detail, which are merged into it.
A detail whose head was lost is an event of its own, `sxid_detail`.
"""

import re
from dataclasses import replace
from typing import Any

from parsers.kernel_messages.family import Family
from parsers.pci import canonical
from store.catalog import Fault, sxid
from store.event import Action, Attribute, Device, Event, Severity

_SXID = re.compile(
    r"(?:nvidia-nvswitch(?P<switch>\d{1,4}): {1,8})?SXid {0,8}\((?P<where>[^()]{1,80})\) {0,8}: {0,8}"
    r"(?P<code>\d{1,9})(?:, *(?P<rest>.*))?$",
    re.ASCII | re.DOTALL,
)
_PLACE = re.compile(
    r"Severity (?P<severity>\d{1,4}) Engine instance (?P<engine>\d{1,9})(?: Sub-engine instance (?P<sub>\d{1,9}))?",
    re.ASCII,
)
_DATA = re.compile(r"Data ?\{(?P<data>[0-9a-fA-Fx, ]{1,400})", re.ASCII)
_DETAIL = re.compile(r"Severity \d|Data ?\{", re.ASCII)
_PRINTED = re.compile(r"(?P<severity>Non[- ]?fatal|Fatal|Correctable)\b,? *", re.IGNORECASE)
_LINK = re.compile(r"Link (?P<link>\d{1,4}) *", re.ASCII)
# The end of a thermal state: told under the code of its beginning.
_OVER = re.compile(r"\b(?:Disengaged|Deactivated)\b")
_FIELD = re.compile(r"\b(?P<name>instance|chiplet)=(?P<value>\d{1,6})", re.ASCII)
# NVSWITCH_ERROR_SEVERITY_TYPE of the driver's error_nvswitch.h.
_SEVERITIES = {0: "non-fatal", 1: "fatal", 2: "correctable"}
# The driver prints at most two lines of data, of 9 and 8 numbers.
MAX_DATA = 400


def decode_sxid(message: str) -> Event | None:
    """The fault of an SXid message or a line of its detail, without time and node; None for another form."""
    match = _SXID.match(message)
    if not match:
        return None
    rest, where = (match["rest"] or "").strip(), match["where"].replace(" ", "")
    pci = canonical(where)
    if pci is None and not where.startswith("PCI:"):
        return None
    code, attributes = int(match["code"]), {"switch": int(match["switch"])} if match["switch"] else {}
    if _DETAIL.match(rest):
        return _detail(code, pci, rest, attributes)
    return _head(code, pci, rest, attributes)


def _head(code: int, pci: str | None, rest: str, attributes: dict[str, Any]) -> Event:
    """The fault itself."""
    printed = _PRINTED.match(rest)
    text = rest[printed.end() :] if printed else rest
    word = printed["severity"].lower().replace(" ", "-").replace("nonf", "non-f") if printed else None
    if word:
        attributes["severity"] = word.replace("-", "")
    link = _LINK.match(text)
    if link:
        attributes["link"] = int(link["link"])
        text = text[link.end() :]
    for field in _FIELD.finditer(text):
        attributes[field["name"]] = int(field["value"])
    if text.endswith("(First)"):  # the first of the errors that the switch latched
        attributes["first"] = True
    fault = sxid(code)
    severity, action = judge_sxid(fault, word)
    if _OVER.search(text):
        severity, action = "info", "none"
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


def _detail(code: int, pci: str | None, rest: str, attributes: dict[str, Any]) -> Event:
    """A line of detail; judged by its own number, for when its head was lost."""
    fault, word = sxid(code), None
    link = None
    if place := _PLACE.match(rest):
        link = int(place["engine"])
        number = int(place["severity"])
        word = _SEVERITIES.get(number)
        attributes |= {"severity_num": number, "link": link, "engine_instance": link}
        if place["sub"]:
            attributes["sub_engine_instance"] = int(place["sub"])
    elif data := _DATA.match(rest):
        attributes["data"] = " ".join(data["data"].replace(",", " ").split())
    severity, action = judge_sxid(fault, word) if word else ("info", "none")
    return Event(
        time=None,
        node=None,
        source="kernel",
        kind="sxid_detail",
        code=code,
        severity=severity,
        cause=fault.cause if fault else "unknown",
        action=action,
        device=Device(type="nvswitch", pci=pci, port=link),
        message=rest,
        attributes=attributes,
    )


def merge(head: Event, detail: Event) -> Event | None:
    """The head with what a line of detail adds; None where the line is of another fault."""
    if detail.kind != "sxid_detail" or (head.code, head.device.pci) != (detail.code, detail.device.pci):
        return None
    had: dict[str, Attribute] = dict(head.attributes)
    more = dict(detail.attributes)
    if had.get("switch") != more.pop("switch", None):
        return None
    if "severity_num" in more:
        if "severity_num" in had or had.get("link") not in (None, more["link"]):
            return None
        more.pop("link")
    elif "data" in had:  # the rest of the data, on a second line
        more["data"] = f"{had['data']} {more['data']}"[:MAX_DATA]
    return replace(head, attributes={**had, **more})


def judge_sxid(fault: Fault | None, printed: str | None) -> tuple[Severity, Action]:
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


FAMILY = Family(name="sxid", signs=("SXid (",), decode=decode_sxid, merge=merge)

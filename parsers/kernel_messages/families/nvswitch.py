"""NVSwitches: SXids of their driver, and messages of NVIDIA's Fabric Manager in the system log or its own file.

    detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33
    -> Event(kind="fabricmanager_nvswitch", code=20034, severity="fatal",
             device=Device("nvswitch", pci="0000:86:00.0", port=33), attributes={"switch": 3, "link": 33, ...})

Forms: tests of leptonai/gpud (Apache-2.0) and lines of public issues. The number is an SXid.
"""

import re
from typing import Any

from parsers.kernel_messages.family import MessageFamily
from store.records.event import Action, Attribute, Device, Event, Severity, canonical_pci
from store.records.fault_catalog import Fault, sxid, with_kind_meaning

# An NVSwitch driver's SXid message: which fault, on which switch, at which link.
#
#     nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Fatal, Link 46 egress sequence ID error
#     nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Severity 1 Engine instance 46 Sub-engine instance 00
#     nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12020, Data {0x00000000, 0x0000002e, ...}
#     -> Event(kind="sxid", code=12020, severity="fatal", device=Device("nvswitch", pci="0000:c1:00.0", port=46),
#              message="egress sequence ID error", attributes={"switch": 3, "link": 46, "severity_num": 1, ...})
#
# The driver (error_nvswitch.c) prints a fault as a head and lines of detail, which are merged into it.
# A detail whose head was lost is an event of its own, `sxid_detail`.

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
_OVER_PARTS = ("isengaged", "eactivated")
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
    switch, where, number, rest = match.groups()
    rest, where = (rest or "").strip(), where.replace(" ", "")
    pci = canonical_pci(where)
    if pci is None and not where.startswith("PCI:"):
        return None
    code, attributes = int(number), {"switch": int(switch)} if switch else {}
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
    for field in _FIELD.finditer(text) if "=" in text else ():
        attributes[field["name"]] = int(field["value"])
    if text.endswith("(First)"):  # the first of the errors that the switch latched
        attributes["first"] = True
    fault = sxid(code)
    severity, action = judge_sxid(fault, word)
    if any(part in text for part in _OVER_PARTS) and _OVER.search(text):
        severity, action = "info", "none"
    return Event(
        None,
        None,
        "kernel",
        "sxid",
        code,
        severity,
        fault.cause if fault else "unknown",
        action,
        Device("nvswitch", pci, None, None, int(link["link"]) if link else None),
        text.strip() or (fault.description if fault else f"SXid {code}"),
        attributes,
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
        None,
        None,
        "kernel",
        "sxid_detail",
        code,
        severity,
        fault.cause if fault else "unknown",
        action,
        Device("nvswitch", pci, None, None, link),
        rest,
        attributes,
    )


def merge_sxid(head: Event, detail: Event) -> Event | None:
    """The head with what a line of detail adds; None where the line is of another fault."""
    if detail.kind != "sxid_detail" or (head.code, head.device.pci) != (detail.code, detail.device.pci):
        return None
    had, more = head.attributes, dict(detail.attributes)
    if had.get("switch") != more.pop("switch", None):
        return None
    if "severity_num" in more:
        if "severity_num" in had or had.get("link") not in (None, more["link"]):
            return None
        more.pop("link")
    elif "data" in had:  # the rest of the data, on a second line
        more["data"] = f"{had['data']} {more['data']}"[:MAX_DATA]
    return head.with_attributes({**had, **more})


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


SXID = MessageFamily(name="sxid", signs=("SXid (",), decode=decode_sxid, merge=merge_sxid)


TAG = "nv-fabricmanager"

_NVSWITCH = re.compile(
    r"detected NVSwitch (?P<word>fatal|non-fatal) error (?P<code>\d{1,9})(?: on (?:fid|NodeId) (?P<fid>\d{1,9}))?"
    r"(?: on NVSwitch pci bus id (?P<pci>[0-9a-fA-F:.]{7,20}))?(?: physical id (?P<switch>\d{1,9}))?"
    r"(?: port (?P<port>\d{1,9}))?",
    re.ASCII,
)
# A kind and its variant in store/catalogs/kinds.csv, and what the line says.
_OTHERS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, variant, re.compile(pattern, re.ASCII))
    for kind, variant, pattern in (
        (
            "fabricmanager_failed",
            "version",
            r"fabric manager NVIDIA GPU driver interface version (?P<version>[\d.]{1,20}) (?:doesn't|don't) match "
            r"with driver version (?P<driver>[\d.]{1,20}?)\.?(?: |$)",
        ),
        ("fabricmanager_failed", "", r".{0,200}?\baborting fabric manager\b"),
        (
            "fabricmanager_failed",
            "",
            r"(?!.{0,300}NV_WARN_NOTHING_TO_DO)request to query NVSwitch device information .{0,80}failed with error",
        ),
        (
            "fabricmanager_failed",
            "setting",
            r"fabric manager config file item: (?P<name>[A-Z][A-Z0-9_]{1,60}) has an invalid value",
        ),
        (
            "fabricmanager_gpu",
            "",
            r"failed to find the GPU handle (?P<handle>\d{1,20}) in the multicast team .{0,40}?(?P<team>\d{1,20})\.?$",
        ),
        ("fabricmanager_state", "", r"Successfully configured all the available (?:GPUs and )?NVSwitches"),
    )
)


def decode_fabricmanager(message: str) -> Event | None:
    """The event of a line without its time and level."""
    if match := _NVSWITCH.match(message):
        return _nvswitch(message, match)
    for kind, variant, pattern in _OTHERS:
        if match := pattern.match(message):
            found = {name: value for name, value in match.groupdict().items() if value is not None}
            event = Event(None, None, "kernel", kind, device=Device(type="node"), message=message, attributes=found)
            return with_kind_meaning(event, variant)
    return None


def _nvswitch(message: str, match: re.Match[str]) -> Event:
    code, port = int(match["code"]), match["port"]
    fault = sxid(code)
    severity, action = judge_sxid(fault, match["word"])
    attributes: dict[str, Attribute] = {"severity": match["word"].replace("-", "")}
    for name in ("fid", "switch"):
        if match[name]:
            attributes[name] = int(match[name])
    if port:
        attributes["link"] = int(port)
    return Event(
        time=None,
        node=None,
        source="kernel",
        kind="fabricmanager_nvswitch",
        code=code,
        severity=severity,
        cause=fault.cause if fault else "unknown",
        action=action,
        device=Device("nvswitch", pci=canonical_pci(match["pci"] or ""), port=int(port) if port else None),
        message=message.strip(),
        attributes=attributes,
    )


FABRICMANAGER = MessageFamily(
    name="fabricmanager",
    signs=(
        "detected NVSwitch ",
        "fabric manager NVIDIA GPU driver",
        "fabric manager config file",
        "aborting fabric manager",
        "request to query NVSwitch",
        "multicast team",
        "Successfully configured all the available",
    ),
    decode=decode_fabricmanager,
    tags=frozenset({TAG}),
)

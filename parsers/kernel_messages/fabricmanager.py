"""What NVIDIA's Fabric Manager says of the NVSwitches, in the system log or its own file.

    detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33
    -> Event(kind="fabricmanager_nvswitch", code=20034, severity="fatal",
             device=Device("nvswitch", pci="0000:86:00.0", port=33), attributes={"switch": 3, "link": 33, ...})

Forms: tests of leptonai/gpud (Apache-2.0) and lines of public issues. The number is an SXid.
"""

import re

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.sxid import judge_sxid
from parsers.pci import canonical
from store.catalog import judged, sxid
from store.event import Attribute, Device, Event

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
            "fabricmanager_gpu",
            "",
            r"failed to find the GPU handle (?P<handle>\d{1,20}) in the multicast team .{0,40}?(?P<team>\d{1,20})\.?$",
        ),
        ("fabricmanager_state", "", r"Successfully configured all the available (?:GPUs and )?NVSwitches"),
    )
)


def decode(message: str) -> Event | None:
    """The event of a line without its time and level."""
    if match := _NVSWITCH.match(message):
        return _nvswitch(message, match)
    for kind, variant, pattern in _OTHERS:
        if match := pattern.match(message):
            found = {name: value for name, value in match.groupdict().items() if value is not None}
            event = Event(None, None, "kernel", kind, device=Device(type="node"), message=message, attributes=found)
            return judged(event, variant)
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
        device=Device("nvswitch", pci=canonical(match["pci"] or ""), port=int(port) if port else None),
        message=message.strip(),
        attributes=attributes,
    )


FAMILY = Family(
    name="fabricmanager",
    signs=(
        "detected NVSwitch ",
        "fabric manager NVIDIA GPU driver",
        "aborting fabric manager",
        "request to query NVSwitch",
        "multicast team",
        "Successfully configured all the available",
    ),
    decode=decode,
    tags=frozenset({TAG}),
)

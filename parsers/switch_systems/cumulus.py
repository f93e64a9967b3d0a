"""Cumulus Linux: switchd (links), smond (fans, supplies, temperatures), clagd (pairs of switches), FRR's bgpd.

    2017-05-22T11:21:07.153894-04:00 leaf01 switchd[19517]: nic.c:223 nic_set_carrier: swp51: setting kernel carrier:
      down                                                                                                (one line)
    -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf01/swp51"},
        "attributes": {"switch": "leaf01", "name": "swp51"}, ...}

Sentences: the monitoring chapters of NVIDIA's Cumulus Linux guide. SONiC's bgpd is the same FRR.
"""

import re

from parsers.switch_systems.system import System, told
from store.event import Event

_PORT = r"(?P<port>(?:swp|eth|bond|peerlink)[\w.]{0,24})"
_CARRIER = re.compile(
    rf"\w{{1,32}}\.c:\d{{1,6}} nic_set_carrier: {_PORT}: setting kernel carrier: (?P<state>up|down)", re.ASCII
)
_STATE = re.compile(
    rf"\w{{1,32}}\.c:\d{{1,6}} (?:libnl: )?{_PORT}[,:] (?:family \d{{1,3}}, )?ifi(?:ndex)? \d{{1,9}}, "
    r"(?P<what>oper|admin) (?P<state>up|down)",
    re.ASCII,
)
_KERNEL = re.compile(
    r"(?:\S{1,64} \S{1,32} )?(?P<port>swp\d{1,3}(?:s\d)?): (?:NIC )?[Ll]ink (?:is )?(?P<state>[Uu]p|[Dd]own)\b",
    re.ASCII,
)
_SENSOR = re.compile(
    r": (?P<name>\S.{0,80}?): state changed from (?P<before>\w{1,16}) to (?P<after>\w{1,16})", re.ASCII
)
_LEVEL = re.compile(r": (?P<name>\S.{0,80}?): .{0,80}is (?P<level>HIGH|LOW|CRITICAL)\b", re.ASCII)
_DIRECTION = re.compile(r": Fan direction mismatch")
_PEER = re.compile(r"[Tt]he peer switch is (?P<gone>no longer )?active")
_DUAL = re.compile(r"(?P<port>\S{1,64}) is (?P<what>no longer|now) dual connected")
_BGP = re.compile(
    r"(?:\[\S{1,16}\] ?)?%ADJCHANGE: neighbor (?P<peer>\S{1,128}).{0,80}? (?P<state>Up|Down)\b(?: (?P<why>.{1,120}))?",
    re.ASCII,
)


def decode(switch: str | None, tag: str, message: str) -> Event | None:
    """The event of a message."""
    program = tag.rpartition("#")[2].rpartition("/")[2]
    if program == "switchd":
        return _switchd(switch, message)
    if program == "kernel":
        found = _KERNEL.match(message)
        return found and _updown(switch, found["port"], found["state"], message)
    if program == "smond":
        return _sensor(switch, message)
    if program == "clagd":
        return _clag(switch, message)
    if program in ("bgpd", "frr") and (found := _BGP.match(message)):
        kind = "bgp_up" if found["state"] == "Up" else "bgp_down"
        return told(switch, kind, message=message, peer=found["peer"], reason=found["why"])
    return None


def _updown(switch: str | None, port: str, state: str, message: str, *, admin: bool = False) -> Event | None:
    if state.lower() == "up":
        return None if admin else told(switch, "link_up", "fabric", port=port, message=message)
    return told(switch, "link_down", "admin" if admin else "fabric", port=port, message=message)


def _switchd(switch: str | None, message: str) -> Event | None:
    if found := _CARRIER.match(message):
        return _updown(switch, found["port"], found["state"], message)
    found = _STATE.match(message)
    return found and _updown(switch, found["port"], found["state"], message, admin=found["what"] == "admin")


def _sensor(switch: str | None, message: str) -> Event | None:
    text = message.lstrip(": ")
    if _DIRECTION.match(message):
        return told(switch, "switch_environment", message=text)
    if found := _SENSOR.match(message):
        before, after = found["before"], found["after"]
        if before == after or (before, after) == ("UNKNOWN", "OK"):  # a switch that starts
            return None
        variant = {"OK": "over", "CRITICAL": "critical"}.get(after, "")
        return told(switch, "switch_environment", variant, message=text, part=found["name"], state=after)
    if found := _LEVEL.match(message):
        variant = "critical" if found["level"] == "CRITICAL" else ""
        return told(switch, "switch_environment", variant, message=text, part=found["name"], state=found["level"])
    return None


def _clag(switch: str | None, message: str) -> Event | None:
    if found := _PEER.search(message):
        return told(switch, "mlag_degraded", "" if found["gone"] else "over", message=message)
    if found := _DUAL.match(message):
        over = "over" if found["what"] == "now" else ""
        return told(switch, "mlag_degraded", over, port=found["port"], message=message)
    return None


SYSTEM = System(
    name="cumulus",
    decode=decode,
    recognises=r"\bswitchd(?:\[\d{1,10}\])?: \w{1,32}\.c:\d|\bsmond(?:\[\d{1,10}\])? ?: : |\bclagd\[\d{1,10}\]: "
    r"|\bkernel: (?:\[ {0,12}\d{1,12}\.\d{1,9}\] )?(?:\S{1,64} \S{1,32} )?swp\d{1,3}(?:s\d)?: "
    r"|\b(?:bgpd|frr)(?:\[\d{1,10}\])?: .{0,20}%ADJCHANGE: ",
)

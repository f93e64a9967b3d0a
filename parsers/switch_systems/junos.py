"""Juniper Junos and Dell OS10: links, fans, supplies and temperatures.

    Jun 18 03:42:11 leaf09 mib2d[2097]: SNMP_TRAP_LINK_DOWN: ifIndex 526, ifAdminStatus up(1), ifOperStatus down(2),
      ifName et-0/0/12                                                                                    (one line)
    -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf09/et-0/0/12"}, ...}

Dell: `... Dell EMC (OS10) %IFM_OSTATE_DN: Interface operational state is down :ethernet1/1/12`.
"""

import re

from parsers.switch_systems.system import System, told
from store.event import Event

_TRAP = re.compile(
    r"SNMP_TRAP_LINK_(?P<state>UP|DOWN): ifIndex \d{1,9}, ifAdminStatus (?P<admin>\w+)\(\d\), "
    r"ifOperStatus \w+\(\d\), ifName (?P<port>[\w./:-]{1,64})",
    re.ASCII,
)
_ALARM = re.compile(
    r"(?P<grade>Major|Minor)? ?[Aa]larm (?P<what>set|cleared)[:,] "
    r"(?:.{0,64}color=(?P<color>\w{1,16}), class=CHASSIS, reason=)?(?P<reason>.{1,200})",
    re.ASCII,
)
_DELL = re.compile(r"%IFM_OSTATE_(?P<state>UP|DN): .{0,80}?: ?(?P<port>[a-z-]{2,16}[\d/:.]{1,24})", re.ASCII)


def decode(switch: str | None, tag: str, message: str) -> Event | None:
    """The event of a message."""
    if tag == "mib2d" and (found := _TRAP.match(message)):
        if "." in found["port"]:  # a unit says what its port says
            return None
        admin = found["admin"] == "down"
        return _updown(switch, found["port"], found["state"] == "UP", admin, message)
    if tag in ("alarmd", "craftd") and (found := _ALARM.match(message)):
        major = "critical" if found["color"] == "RED" or found["grade"] == "Major" else ""
        variant = "over" if found["what"] == "cleared" else major
        return told(switch, "switch_environment", variant, message=message, reason=found["reason"])
    if (found := _DELL.search(message[:400])) and not found["port"].startswith(("vlan", "loopback")):
        return _updown(switch, found["port"], found["state"] == "UP", False, message)
    return None


def _updown(switch: str | None, port: str, up: bool, admin: bool, message: str) -> Event:
    if up:
        return told(switch, "link_up", "fabric", port=port, message=message)
    return told(switch, "link_down", "admin" if admin else "fabric", port=port, message=message)


SYSTEM = System(
    name="junos",
    decode=decode,
    recognises=r"\bmib2d(?:\[\d{1,10}\])?: SNMP_TRAP_LINK_"
    r"|\b(?:alarmd|craftd)(?:\[\d{1,10}\])?: (?:(?:Major|Minor) a|A)larm (?:set|cleared)|%IFM_OSTATE_(?:UP|DN): ",
)

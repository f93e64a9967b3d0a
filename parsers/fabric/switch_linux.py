"""Linux systems of switches: SONiC and Cumulus.

SONiC: orchagent and teamd (links, PFC storms, the chip), xcvrd (optics), psud, thermalctld (environment), reboots.

    May 23 09:17:30.561319 leaf01 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet8 oper state set from up
      to down                                                                                             (one line)
    -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf01/Ethernet8"},
        "attributes": {"switch": "leaf01", "name": "Ethernet8"}, ...}

Format strings: sonic-swss portsorch.cpp, pfcactionhandler.cpp, pfcwdorch.cpp, switchorch.cpp; sonic-platform-daemons
psud, thermalctld, xcvrd; the PUDE line is that of the Mellanox switch driver sx_netdev.
"""

import re

from parsers.fabric.switch_system import SwitchSystem, switch_event
from store.records.event import Event

# Cumulus Linux: switchd (links), smond (fans, supplies, temperatures), clagd (pairs of switches), FRR's bgpd.
#
#     2017-05-22T11:21:07.153894-04:00 leaf01 switchd[19517]: nic.c:223 nic_set_carrier: swp51: setting kernel carrier:
#       down                                                                                                (one line)
#     -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf01/swp51"},
#         "attributes": {"switch": "leaf01", "name": "swp51"}, ...}
#
# Sentences: the monitoring chapters of NVIDIA's Cumulus Linux guide. SONiC's bgpd is the same FRR.

_CUMULUS_PORT = r"(?P<port>(?:swp|eth|bond|peerlink)[\w.]{0,24})"
_CUMULUS_CARRIER = re.compile(
    rf"\w{{1,32}}\.c:\d{{1,6}} nic_set_carrier: {_CUMULUS_PORT}: setting kernel carrier: (?P<state>up|down)", re.ASCII
)
_STATE = re.compile(
    rf"\w{{1,32}}\.c:\d{{1,6}} (?:libnl: )?{_CUMULUS_PORT}[,:] (?:family \d{{1,3}}, )?ifi(?:ndex)? \d{{1,9}}, "
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


def decode_cumulus(switch: str | None, tag: str, message: str) -> Event | None:
    """The event of a message."""
    program = tag.rpartition("#")[2].rpartition("/")[2]
    if program == "switchd":
        return _switchd(switch, message)
    if program == "kernel":
        found = _KERNEL.match(message)
        return found and _cumulus_updown(switch, found["port"], found["state"], message)
    if program == "smond":
        return _sensor(switch, message)
    if program == "clagd":
        return _clag(switch, message)
    if program in ("bgpd", "frr") and (found := _BGP.match(message)):
        kind = "bgp_up" if found["state"] == "Up" else "bgp_down"
        return switch_event(switch, kind, message=message, peer=found["peer"], reason=found["why"])
    return None


def _cumulus_updown(switch: str | None, port: str, state: str, message: str, *, admin: bool = False) -> Event | None:
    if state.lower() == "up":
        return None if admin else switch_event(switch, "link_up", "fabric", port=port, message=message)
    return switch_event(switch, "link_down", "admin" if admin else "fabric", port=port, message=message)


def _switchd(switch: str | None, message: str) -> Event | None:
    if found := _CUMULUS_CARRIER.match(message):
        return _cumulus_updown(switch, found["port"], found["state"], message)
    found = _STATE.match(message)
    return found and _cumulus_updown(switch, found["port"], found["state"], message, admin=found["what"] == "admin")


def _sensor(switch: str | None, message: str) -> Event | None:
    text = message.lstrip(": ")
    if _DIRECTION.match(message):
        return switch_event(switch, "switch_environment", message=text)
    if found := _SENSOR.match(message):
        before, after = found["before"], found["after"]
        if before == after or (before, after) == ("UNKNOWN", "OK"):  # a switch that starts
            return None
        variant = {"OK": "over", "CRITICAL": "critical"}.get(after, "")
        return switch_event(switch, "switch_environment", variant, message=text, part=found["name"], state=after)
    if found := _LEVEL.match(message):
        variant = "critical" if found["level"] == "CRITICAL" else ""
        return switch_event(
            switch, "switch_environment", variant, message=text, part=found["name"], state=found["level"]
        )
    return None


def _clag(switch: str | None, message: str) -> Event | None:
    if found := _PEER.search(message):
        return switch_event(switch, "mlag_degraded", "" if found["gone"] else "over", message=message)
    if found := _DUAL.match(message):
        over = "over" if found["what"] == "now" else ""
        return switch_event(switch, "mlag_degraded", over, port=found["port"], message=message)
    return None


CUMULUS = SwitchSystem(
    name="cumulus",
    decode=decode_cumulus,
    recognises=r"\bswitchd(?:\[\d{1,10}\])?: \w{1,32}\.c:\d|\bsmond(?:\[\d{1,10}\])? ?: : |\bclagd\[\d{1,10}\]: "
    r"|\bkernel: (?:\[ {0,12}\d{1,12}\.\d{1,9}\] )?(?:\S{1,64} \S{1,32} )?swp\d{1,3}(?:s\d)?: "
    r"|\b(?:bgpd|frr)(?:\[\d{1,10}\])?: .{0,20}%ADJCHANGE: ",
)


_SONIC_PORT = r"(?P<port>(?:Ethernet|PortChannel)\S{1,32}?)"
_OPER = re.compile(
    rf"(?::- )?(?:\w{{1,64}}: )?Port {_SONIC_PORT} oper state set from (?P<before>\w+) to (?P<after>\w+)"
)
_HOST_IF = re.compile(rf"(?::- )?\w{{1,64}}: Set operation status (?P<state>UP|DOWN) to host interface {_SONIC_PORT}$")
_ADMIN = re.compile(
    r"(?::- )?\w{1,64}: (?:Set port|Configure) (?P<port>(?:Ethernet|PortChannel)\S{1,32}) admin status to down"
)
_PUDE = re.compile(
    r"sx_netdev_handle_pude_event: Called for logical port - (?P<port>\d{1,9}) status (?P<state>UP|DOWN)"
)
_STORM = re.compile(
    r"(?::- )?(?:\w{1,64}: )?PFC Watchdog (?P<what>detected PFC storm on|storm restored on) {1,2}"
    r"(?:port (?P<port>[^\s,]{1,64}), queue index (?P<queue>\d{1,3})|queue \S{1,20} port (?P<oid>0x[0-9a-f]{1,16}))"
)
_SONIC_CARRIER = re.compile(r"(?:(?P<port>Ethernet\d+): )?carrier changed to (?P<state>UP|DOWN)")
_HEALTH = re.compile(r"ASIC/SDK health event occurred", re.IGNORECASE)
_CORRECTED = re.compile(r"corrected(?<!uncorrected)|single.?bit", re.IGNORECASE)
_PARITY = re.compile(r"\bparity error|\buncorrectable\b.{0,80}\berror|\bECC error|\bSER\b.{0,80}\berror", re.IGNORECASE)
_SFP = re.compile(r"(?P<port>Ethernet\S{1,32}): Got SFP (?P<what>removed|error) event")
_CMIS = re.compile(r"CMIS: (?P<port>Ethernet\S{1,32}): .{0,200}(?:FAILED|[Tt]imeout|timed out)")
_WARNING = re.compile(r"(?P<what>[A-Z][A-Za-z ]{2,60}?) warning(?P<over> cleared)?[:,] {0,2}(?P<text>\S.{0,500})")
_PART = re.compile(
    r"(?!system power|\d{1,3} fan)(?P<name>\S.{0,60}?) (?:is|was|power|voltage|temperature|current|restored?|speed)\b"
)
_CAUSE = re.compile(r".{0,200}?(?:[Rr]eboot cause(?: is| was)?:? |[Rr]eason: ?)(?P<cause>\S.{0,300})")
_PLANNED = re.compile(r"[Uu]ser (?:requested|issued)|\bUser\b|'(?:\S*reboot|soft-reboot)' command")
_REBOOTING = re.compile(r"(?:User requested rebooting device|User requested \S{1,20} reboot|Rebooting with )")
_REBOOT_TAGS = ("reboot", "fast-reboot", "warm-reboot", "soft-reboot", "express-reboot")
_SWSS_TAGS = ("orchagent", "portmgrd")


def decode_sonic(switch: str | None, tag: str, message: str) -> Event | None:
    """The event of a message; `swss#orchagent` is the program orchagent of a container."""
    program = tag.rpartition("#")[2]
    if program in _SWSS_TAGS:
        return _link(switch, message) or _storm(switch, message) or _chip(switch, message)
    if program == "kernel":
        return _pude(switch, message) if message.startswith("sx_netdev") else None
    if program.startswith("teamd_"):
        return _carrier(switch, program, message)
    if program == "syncd":
        return _chip(switch, message)
    if program == "xcvrd":
        return _optics(switch, message)
    if program in ("psud", "thermalctld"):
        return _environment(switch, message)
    if program in ("determine-reboot-cause", "process-reboot-cause") and (found := _CAUSE.match(message)):
        planned = "planned" if _PLANNED.search(found["cause"]) else ""
        return switch_event(switch, "switch_reboot", planned, message=message, reason=found["cause"].rstrip("."))
    if program in _REBOOT_TAGS and _REBOOTING.search(message):
        return switch_event(switch, "switch_reboot", "planned", message=message)
    return None


def _link(switch: str | None, message: str) -> Event | None:
    if found := _OPER.match(message):
        before, after = found["before"], found["after"]
        if before == after or (after != "up" and before != "up"):  # it was not up before: a switch that starts
            return None
        return _sonic_updown(switch, found["port"], after == "up", message)
    if found := _HOST_IF.match(message):
        return _sonic_updown(switch, found["port"], found["state"] == "UP", message)
    if found := _ADMIN.match(message):
        return switch_event(switch, "link_down", "admin", port=found["port"], message=message)
    return None


def _sonic_updown(switch: str | None, port: str, up: bool, message: str) -> Event:
    text = message.removeprefix(":- ").partition(": ")[2] or message
    return switch_event(switch, "link_up" if up else "link_down", "fabric", port=port, message=text)


def _pude(switch: str | None, message: str) -> Event | None:
    """The driver's own word of a link: the chip's number of the port. orchagent names the port right after."""
    found = _PUDE.match(message)
    if not found:
        return None
    kind = "link_up" if found["state"] == "UP" else "link_down"
    number = int(found["port"])
    return switch_event(switch, kind, "fabric", port=f"logical {number}", message=message, logical_port=number)


def _carrier(switch: str | None, program: str, message: str) -> Event | None:
    found = _SONIC_CARRIER.match(message)
    return found and _sonic_updown(switch, found["port"] or program[6:], found["state"] == "UP", message)


def _storm(switch: str | None, message: str) -> Event | None:
    found = _STORM.match(message)
    if not found:
        return None
    over = "over" if found["what"].startswith("storm") else ""
    queue = int(found["queue"]) if found["queue"] else None
    return switch_event(switch, "pfc_storm", over, port=found["port"] or found["oid"], message=message, queue=queue)


def _chip(switch: str | None, message: str) -> Event | None:
    if _HEALTH.search(message):
        notice = re.search(r"\b(?:notice|warning)\b", message[:200], re.IGNORECASE)
        return switch_event(switch, "switch_asic_error", "corrected" if notice else "", message=message)
    if _PARITY.search(message):
        return switch_event(
            switch, "switch_asic_error", "corrected" if _CORRECTED.search(message) else "", message=message
        )
    return None


def _optics(switch: str | None, message: str) -> Event | None:
    if found := _SFP.match(message):
        return switch_event(
            switch,
            "optics_alarm",
            "removed" if found["what"] == "removed" else "",
            port=found["port"],
            message=message,
        )
    found = _CMIS.match(message)
    return found and switch_event(switch, "optics_alarm", port=found["port"], message=message)


def _environment(switch: str | None, message: str) -> Event | None:
    found = _WARNING.match(message)
    if not found:
        return None
    part = _PART.match(found["text"])
    name = part["name"] if part else None
    return switch_event(switch, "switch_environment", "over" if found["over"] else "", message=message, part=name)


SONIC = SwitchSystem(
    name="sonic",
    decode=decode_sonic,
    recognises=r"\b(?:EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG) [\w-]{1,32}#[\w/.-]{1,64}(?:\[\d{1,10}\])?: "
    r"|\b(?:determine|process)-reboot-cause(?:\[\d{1,10}\])?: |\borchagent(?:\[\d{1,10}\])?: :- "
    r"|\bsx_netdev_handle_pude_event: ",
)

"""SONiC: orchagent and teamd (links, PFC storms, the chip), xcvrd (optics), psud, thermalctld (environment), reboots.

    May 23 09:17:30.561319 leaf01 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet8 oper state set from up
      to down                                                                                             (one line)
    -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf01/Ethernet8"},
        "attributes": {"switch": "leaf01", "name": "Ethernet8"}, ...}

Format strings: sonic-swss portsorch.cpp, pfcactionhandler.cpp, pfcwdorch.cpp, switchorch.cpp; sonic-platform-daemons
psud, thermalctld, xcvrd; the PUDE line is that of the Mellanox switch driver sx_netdev.
"""

import re

from parsers.switch_systems.system import System, told
from store.event import Event

_PORT = r"(?P<port>(?:Ethernet|PortChannel)\S{1,32}?)"
_OPER = re.compile(rf"(?::- )?(?:\w{{1,64}}: )?Port {_PORT} oper state set from (?P<before>\w+) to (?P<after>\w+)")
_HOST_IF = re.compile(rf"(?::- )?\w{{1,64}}: Set operation status (?P<state>UP|DOWN) to host interface {_PORT}$")
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
_CARRIER = re.compile(r"(?:(?P<port>Ethernet\d+): )?carrier changed to (?P<state>UP|DOWN)")
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


def decode(switch: str | None, tag: str, message: str) -> Event | None:
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
        return told(switch, "switch_reboot", planned, message=message, reason=found["cause"].rstrip("."))
    if program in _REBOOT_TAGS and _REBOOTING.search(message):
        return told(switch, "switch_reboot", "planned", message=message)
    return None


def _link(switch: str | None, message: str) -> Event | None:
    if found := _OPER.match(message):
        before, after = found["before"], found["after"]
        if before == after or (after != "up" and before != "up"):  # it was not up before: a switch that starts
            return None
        return _updown(switch, found["port"], after == "up", message)
    if found := _HOST_IF.match(message):
        return _updown(switch, found["port"], found["state"] == "UP", message)
    if found := _ADMIN.match(message):
        return told(switch, "link_down", "admin", port=found["port"], message=message)
    return None


def _updown(switch: str | None, port: str, up: bool, message: str) -> Event:
    text = message.removeprefix(":- ").partition(": ")[2] or message
    return told(switch, "link_up" if up else "link_down", "fabric", port=port, message=text)


def _pude(switch: str | None, message: str) -> Event | None:
    """The driver's own word of a link: the chip's number of the port. orchagent names the port right after."""
    found = _PUDE.match(message)
    if not found:
        return None
    kind = "link_up" if found["state"] == "UP" else "link_down"
    number = int(found["port"])
    return told(switch, kind, "fabric", port=f"logical {number}", message=message, logical_port=number)


def _carrier(switch: str | None, program: str, message: str) -> Event | None:
    found = _CARRIER.match(message)
    return found and _updown(switch, found["port"] or program[6:], found["state"] == "UP", message)


def _storm(switch: str | None, message: str) -> Event | None:
    found = _STORM.match(message)
    if not found:
        return None
    over = "over" if found["what"].startswith("storm") else ""
    queue = int(found["queue"]) if found["queue"] else None
    return told(switch, "pfc_storm", over, port=found["port"] or found["oid"], message=message, queue=queue)


def _chip(switch: str | None, message: str) -> Event | None:
    if _HEALTH.search(message):
        notice = re.search(r"\b(?:notice|warning)\b", message[:200], re.IGNORECASE)
        return told(switch, "switch_asic_error", "corrected" if notice else "", message=message)
    if _PARITY.search(message):
        return told(switch, "switch_asic_error", "corrected" if _CORRECTED.search(message) else "", message=message)
    return None


def _optics(switch: str | None, message: str) -> Event | None:
    if found := _SFP.match(message):
        return told(
            switch,
            "optics_alarm",
            "removed" if found["what"] == "removed" else "",
            port=found["port"],
            message=message,
        )
    found = _CMIS.match(message)
    return found and told(switch, "optics_alarm", port=found["port"], message=message)


def _environment(switch: str | None, message: str) -> Event | None:
    found = _WARNING.match(message)
    if not found:
        return None
    part = _PART.match(found["text"])
    name = part["name"] if part else None
    return told(switch, "switch_environment", "over" if found["over"] else "", message=message, part=name)


SYSTEM = System(
    name="sonic",
    decode=decode,
    recognises=r"\b(?:EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG) [\w-]{1,32}#[\w/.-]{1,64}(?:\[\d{1,10}\])?: "
    r"|\b(?:determine|process)-reboot-cause(?:\[\d{1,10}\])?: |\borchagent(?:\[\d{1,10}\])?: :- "
    r"|\bsx_netdev_handle_pude_event: ",
)

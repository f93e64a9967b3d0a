"""The subnet manager's own state: master or standby, its sweeps, whether the subnet is up.

    Entering MASTER state
    -> {"kind": "sm_state", "attributes": {"state": "MASTER", "from": "DISCOVERING", "takeover": true}, ...}

A manager that was standby and becomes master has taken over: the other one has died or handed over, so that is a
warning. `SUBNET UP` ends every sweep: it is an event only where the subnet was not up before. A heavy sweep (boxes in
upstream's verbose log and MLNX's default one) is the manager's answer to a change, or to its own failure.
"""

import re
from dataclasses import replace

from parsers.opensm_messages.names import Names, canonical_guid
from store.catalog import judged
from store.event import Attribute, Device, Event

_STATE = re.compile(r"(?P<message>Entering (?P<state>[A-Z][A-Z_-]{1,31}) state|Exiting SM)", re.ASCII)
_PORT = re.compile(r"SM port is (?P<state>down|up)\b", re.ASCII)
_HANDOVER = re.compile(
    r"(?:\w{1,64}: )?Handing over mastership\. Updating sm_state_mgr master_guid: (?:0x)?(?P<guid>[0-9a-f]{16})"
    r"(?: \(node (?P<name>[^)\n]{0,128})\))?",
    re.ASCII,
)
_SWEEP = re.compile(
    r"(?:\w{1,64}:\s{0,8}\*{3,80}\n\*{3,80} INITIATING HEAVY SWEEP "
    r"|(?:\w{1,64}: )?Entering heavy sweep with flags: (?P<flags>[^\n]{0,400}))",
    re.ASCII,
)
_FLAG = re.compile(r"([a-z][a-z_ ]{2,40}[a-z]) (\d)", re.ASCII)
_FAILED = re.compile(r"Errors during initialization\b", re.ASCII)
_STARTED = re.compile(r"OpenSM \d{1,3}\.", re.ASCII)
_UP = re.compile(r"SUBNET UP\s*$", re.ASCII)


class Manager:
    """What one manager's log has told of itself so far."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._state: str | None = None
        self._was_standby = False
        self._coming_up = False  # the next SUBNET UP is news

    def read(self, text: str) -> Event | None:
        """The event of a message about the manager; None for another."""
        if _UP.match(text):
            news, self._coming_up = self._coming_up, False
            return judged(_event("subnet_up", "Subnet up", {})) if news else None
        if match := _STATE.match(text):
            return self._entered(match["state"] or "EXITED", match["message"])
        if match := _SWEEP.match(text):
            return self._sweep(match)
        if match := _PORT.match(text):
            down = match["state"] == "down"
            self._coming_up |= down
            state = f"PORT_{match['state'].upper()}"
            event = _event("sm_state", f"The port of the subnet manager is {match['state']}", {"state": state})
            return judged(event, "port_down" if down else "")
        if match := _HANDOVER.match(text):
            return self._handover(match)
        if _STARTED.match(text):  # a new process: what the one before it was is over
            self._state, self._was_standby = None, False
        elif _FAILED.match(text):
            self._coming_up = True
            return judged(_event("sm_error", "Errors during initialization of the subnet", {}), "initialization")
        return None

    def _entered(self, state: str, message: str) -> Event:
        attributes: dict[str, Attribute] = {"state": state}
        if self._state is not None:
            attributes["from"] = self._state
        takeover = state == "MASTER" and self._was_standby
        if takeover:
            attributes["takeover"] = True
        # A standby manager goes through DISCOVERING on its way to MASTER; one that starts has no state before it.
        if state in ("STANDBY", "MASTER", "EXITED"):
            self._was_standby = state == "STANDBY"
        self._coming_up |= state in ("MASTER", "DISCOVERING")
        self._state = None if state == "EXITED" else state
        return judged(_event("sm_state", message, attributes), "takeover" if takeover else "")

    def _handover(self, match: re.Match[str]) -> Event:
        guid = canonical_guid(match["guid"])
        where = self._names.place_of(guid, match["name"])
        event = _event("sm_state", f"Handing over to the subnet manager at {where.text or guid}", {"state": "HANDOVER"})
        return judged(replace(event, node=where.host, device=Device(type="port", uuid=guid)))

    def _sweep(self, match: re.Match[str]) -> Event:
        """MLNX builds print a box (HEAVY SWEEP START) and then the flags: the second line is the event, it says why."""
        flags = _FLAG.findall(match["flags"] or "")
        attributes: dict[str, Attribute] = {name.strip().replace(" ", "_"): value != "0" for name, value in flags}
        failed = attributes.get("subnet_initialization_error") is True
        return judged(_event("heavy_sweep", "Heavy sweep", attributes), "after_errors" if failed else "")


def _event(kind: str, message: str, attributes: dict[str, Attribute]) -> Event:
    return Event(None, None, "opensm", kind, message=message, attributes=attributes)

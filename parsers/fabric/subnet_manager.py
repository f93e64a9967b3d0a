"""The subnet manager: its state, traps that it receives, and requests that no node answers.

An unanswered request is one event of the three or four records that report it:

    log_send_error: ERR 5411: DR SMP Send completed with error (IB_TIMEOUT) -- dropping
                Method 0x1, Attr 0x11, TID 0x4f90
    Received SMP on a 3 hop path: Initial path = 0,1,39,3, Return path  = 0,0,0,0
    sm_mad_ctrl_send_err_cb: ERR 3113: MAD completed in error (IB_TIMEOUT): SubnGet(NodeInfo), attr_mod 0x0, TID 0x4f90
    sm_mad_ctrl_send_err_cb: ERR 3120: Timeout while getting attribute 0x11 (NodeInfo); Possible mis-set mkey?
    -> {"kind": "smp_timeout", "device": {"type": "switch", "uuid": "0xb83fd20300100080"},
        "attributes": {"error": "5411", "status": "IB_TIMEOUT", "path": "0,1,39,3", "request": "NodeInfo",
        "method": "SubnGet", "switch": "leaf03"}, ...}

The node is named by its directed route (the port numbers from the manager's own port on), by its LID where the request
was routed, and by GUID where the log has named the switch that stands at the end of that route. A silent node may be
well and a link on the way to it not.
"""

import re
from dataclasses import replace
from datetime import datetime

from parsers.fabric.node_names import NodeNames, canonical_guid
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import opensm_errors, with_kind_meaning

# Every `ERR xxxx` of the subnet manager: the code, the function, and the node or port that the words name.
#
#     state_mgr_light_sweep_start: ERR 3315: Unknown remote side for node 0xb83fd2030010fa40 (MF0;spine02:MQM8700/U1)
#         port 3. Adding to light sweep sampling list                                                 (one line)
#     -> {"kind": "sm_error", "severity": "warning", "device": {"type": "port", "uuid": "0xb83fd2030010fa40", "port":
# 3},
#         "attributes": {"error": "3315", "function": "state_mgr_light_sweep_start", "switch": "spine02"}, ...}
#
# What the known codes mean stands in `store/catalogs/opensm.csv`; an unknown one is an error to be watched. A number is
# text: it is hexadecimal, and some of opensm's own begin with the letter O.

_ERROR = re.compile(
    r"(?:PerfMgr: )?(?:(?P<function>\w{1,64}): )?(?:PerfMgr: )?ERR (?P<error>\w{4}): ?(?P<message>.{0,2000})",
    re.ASCII | re.DOTALL,
)
_DUPLICATE = re.compile(
    r"Found duplicated node GUID\.\s{1,40}Node (?P<guid>0x[0-9a-f]{1,16}) port (?P<port>\d{1,3}) is reachable from "
    r"remote node (?P<first>0x[0-9a-f]{1,16}) port (?P<first_port>\d{1,3}) and "
    r"remote node (?P<second>0x[0-9a-f]{1,16}) port (?P<second_port>\d{1,3})",
    re.ASCII,
)
_WORD = r"\b(?P<what>GUID|guid|[Pp]ort|[Nn]ode|[Ss]witch|[Rr]outer)"
_GUID = re.compile(rf"{_WORD}(?: GUID| guid| by guid| with GUID)?[ :]{{0,3}}(?P<guid>0x[0-9a-f]{{1,16}})", re.ASCII)
_BARE_GUID = re.compile(r"(?<!TID )(?<!TID:)\b(?P<guid>0x[0-9a-f]{16})\b", re.ASCII)
_ERROR_PORT = re.compile(r"\b(?:port(?: num)?|num)[ :]{1,2}(?P<port>\d{1,3})\b(?! times)", re.ASCII)
_LID = re.compile(r"\b[Ll](?:ID|id)[ :]{1,2}(?P<lid>\d{1,5})\b", re.ASCII)
# `cn017 HCA-1 (0x0008f10403970e1c) port 1`: the performance manager names the node first.
_NAME_FIRST = re.compile(
    r"(?:.{0,100}? (?:on node|on|for) )?\"?(?P<name>[^()\"\n]{1,64}?)\"? \((?:\w{1,8} )?(?P<guid>0x[0-9a-f]{16})\)"
)
_PARENTHESES = re.compile(r"(?P<guid>0x[0-9a-f]{16}) \((?:node )?'?(?P<name>[^()'\n]{1,128})", re.ASCII)


def decode_error(text: str, names: NodeNames) -> Event | None:
    """The event of a message with an error's number; None for another."""
    match = _ERROR.match(text)
    if not match:
        return None
    error, function, message = match["error"], match["function"] or "", match["message"].strip()
    attributes: dict[str, Attribute] = {"error": error}
    if function:
        attributes["function"] = function
    event = with_kind_meaning(
        Event(None, None, "opensm", "sm_error", message=_one_line(message), attributes=attributes)
    )
    known = opensm_errors().get((error, function)) or opensm_errors().get((error, ""))
    if known:
        event = replace(event, severity=known.severity, cause=known.cause, action=known.action)
    if duplicate := _DUPLICATE.match(message):
        return _duplicate(event, duplicate, names)
    return _placed(event, message, names)


def _one_line(text: str) -> str:
    """The words of a record that spans lines, its first 400 letters."""
    return " ".join(text.split())[:400]


def _placed(event: Event, message: str, names: NodeNames) -> Event:
    """The event at the node or port that the words name, if they name one."""
    attributes: dict[str, Attribute] = dict(event.attributes)
    port = int(found["port"]) if (found := _ERROR_PORT.search(message)) else None
    lid = int(found["lid"]) if (found := _LID.search(message)) else None
    if lid:
        attributes["lid"] = lid
    reported = _GUID.search(message) or _BARE_GUID.search(message)
    guid = canonical_guid(reported["guid"]) if reported else names.guid_of(lid or 0)
    if guid is None:
        return replace(event, attributes=attributes)
    named = _PARENTHESES.search(message) or _NAME_FIRST.match(message)
    where = names.place_of(guid, named["name"] if named and canonical_guid(named["guid"]) == guid else None)
    if port is not None:
        kind = "port"
    elif where.switch or (reported and reported.groupdict().get("what", "").lower() == "switch"):
        kind = "switch"
    else:
        kind = "hca" if reported and reported.groupdict().get("what", "").lower() == "node" else "port"
    device = Device(type=kind, uuid=guid, port=port)
    return replace(event, node=where.host, device=device, attributes={**attributes, **where.attributes()})


def _duplicate(event: Event, match: re.Match[str], names: NodeNames) -> Event:
    """Two nodes with one GUID: the switch ports at which they hang are the places to look."""
    guid = canonical_guid(match["guid"])
    where = names.place_of(guid)
    ends = sorted(
        (canonical_guid(match[end]), int(match[f"{end}_port"])) for end in ("first", "second")
    )  # opensm names them in either order
    attributes: dict[str, Attribute] = dict(event.attributes)
    for number, (switch, port) in enumerate(ends, start=1):
        attributes[f"seen_at_{number}"] = f"{names.place_of(switch).text or switch} port {port}"
        attributes[f"end_{number}"] = f"{switch}/{port}"
    device = Device(type="hca", uuid=guid, port=int(match["port"]))
    message = f"Duplicate node GUID {guid}: {attributes['seen_at_1']} and {attributes['seen_at_2']}"
    attributes |= where.attributes()
    return replace(event, node=where.host, device=device, message=message, attributes=attributes)


# The subnet manager's own state: master or standby, its sweeps, whether the subnet is up.
#
#     Entering MASTER state
#     -> {"kind": "sm_state", "attributes": {"state": "MASTER", "from": "DISCOVERING", "takeover": true}, ...}
#
# A manager that was standby and becomes master has taken over: the other one has died or handed over, so that is a
# warning. `SUBNET UP` ends every sweep: it is an event only where the subnet was not up before. A heavy sweep (boxes in
# upstream's verbose log and MLNX's default one) is the manager's answer to a change, or to its own failure.

_STATE = re.compile(r"(?P<message>Entering (?P<state>[A-Z][A-Z_-]{1,31}) state|Exiting SM)", re.ASCII)
_SM_PORT = re.compile(r"SM port is (?P<state>down|up)\b", re.ASCII)
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


class SubnetManager:
    """What one manager's log has reported of itself so far."""

    def __init__(self, names: NodeNames) -> None:
        self._names = names
        self._state: str | None = None
        self._was_standby = False
        self._coming_up = False  # the next SUBNET UP is news

    def read(self, text: str) -> Event | None:
        """The event of a message about the manager; None for another."""
        if _UP.match(text):
            news, self._coming_up = self._coming_up, False
            return with_kind_meaning(_event("subnet_up", "Subnet up", {})) if news else None
        if match := _STATE.match(text):
            return self._entered(match["state"] or "EXITED", match["message"])
        if match := _SWEEP.match(text):
            return self._sweep(match)
        if match := _SM_PORT.match(text):
            down = match["state"] == "down"
            self._coming_up |= down
            state = f"PORT_{match['state'].upper()}"
            event = _event("sm_state", f"The port of the subnet manager is {match['state']}", {"state": state})
            return with_kind_meaning(event, "port_down" if down else "")
        if match := _HANDOVER.match(text):
            return self._handover(match)
        if _STARTED.match(text):  # a new process: what the one before it was is over
            self._state, self._was_standby = None, False
        elif _FAILED.match(text):
            self._coming_up = True
            return with_kind_meaning(
                _event("sm_error", "Errors during initialization of the subnet", {}), "initialization"
            )
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
        return with_kind_meaning(_event("sm_state", message, attributes), "takeover" if takeover else "")

    def _handover(self, match: re.Match[str]) -> Event:
        guid = canonical_guid(match["guid"])
        where = self._names.place_of(guid, match["name"])
        event = _event("sm_state", f"Handing over to the subnet manager at {where.text or guid}", {"state": "HANDOVER"})
        return with_kind_meaning(replace(event, node=where.host, device=Device(type="port", uuid=guid)))

    def _sweep(self, match: re.Match[str]) -> Event:
        """MLNX builds print a box (HEAVY SWEEP START) and then the flags: the second line is the event, it says why."""
        flags = _FLAG.findall(match["flags"] or "")
        attributes: dict[str, Attribute] = {name.strip().replace(" ", "_"): value != "0" for name, value in flags}
        failed = attributes.get("subnet_initialization_error") is True
        return with_kind_meaning(_event("heavy_sweep", "Heavy sweep", attributes), "after_errors" if failed else "")


def _event(kind: str, message: str, attributes: dict[str, Attribute]) -> Event:
    return Event(None, None, "opensm", kind, message=message, attributes=attributes)


# The records of one timeout come within microseconds of each other, from one thread.
WITHIN_S = 0.2
WITHIN_LINES = 40

_DROPPED = re.compile(
    r"(?:\w{1,64}: )?ERR (?P<error>54\d\d): (?:DR SMP )?[Ss]end completed with error[^\n]{0,80}", re.ASCII
)
_DETAIL = re.compile(
    r"\((?P<status>IB_\w{1,32})\)|[,( ]LID:? ?(?P<lid>\d{1,5})|\b(?:Attr |attr=)(?P<attr>0x[0-9A-Fa-f]{1,4})", re.ASCII
)
_PATH = re.compile(
    r"Received SMP on a \d{1,3} hop path:\s{1,40}Initial path(?: =|:) {1,3}(?P<path>\d[\d,]{0,256})", re.ASCII
)
_COMPLETED = re.compile(
    r"(?:\w{1,64}: )?ERR (?P<error>3113): MAD completed in error \((?P<status>\w{1,32})\)"
    r"(?:: (?P<method>\w{1,24})\((?P<request>\w{1,40})\)(?:, attr_mod (?P<modifier>0x[0-9a-f]{1,8}))?)?",
    re.ASCII,
)
_AFTER = re.compile(r"(?:\w{1,64}: )?ERR (?:3120: |3119: |54\d\d: DR SMP Hop Ptr)", re.ASCII)


class Timeouts:
    """Gathers the records of one timed-out request. Holds one request at a time."""

    def __init__(self, names: NodeNames) -> None:
        self._names = names
        self._held: Event | None = None
        self._thread = ""

    def read(self, text: str, time: datetime | None, line: int, thread: str) -> list[Event] | None:
        """The events of a message about a request without an answer; None for another message."""
        if match := _DROPPED.match(text):
            before = self.flush()
            self._open(match["error"], _detail(text), time, line, thread)
            return before
        held = self._held if thread == self._thread else None
        if match := _PATH.match(text):
            if held is not None:
                self._add({"path": match["path"].rstrip(",")})
            return []
        if match := _COMPLETED.match(text):
            return self._completed(match, held, time, line, thread)
        return [] if held is not None and _AFTER.match(text) else None

    def late(self, time: datetime | None, line: int) -> list[Event]:
        """The request that no more records are awaited of, as of a line."""
        held = self._held
        if held is None:
            return []
        if held.time is None or time is None:
            over = line - (held.line or 0) > WITHIN_LINES
        else:
            over = not 0 <= (time - held.time).total_seconds() <= WITHIN_S
        return self.flush() if over else []

    def flush(self) -> list[Event]:
        """What is held, as far as it is known."""
        held, self._held = self._held, None
        return [] if held is None else [self._named(held)]

    def _open(self, error: str, detail: dict[str, Attribute], time: datetime | None, line: int, thread: str) -> None:
        attributes: dict[str, Attribute] = {"error": error, **detail}
        self._held = with_kind_meaning(Event(time, None, "opensm", "smp_timeout", attributes=attributes, line=line))
        self._thread = thread

    def _add(self, attributes: dict[str, Attribute]) -> None:
        if self._held is not None:
            self._held = replace(self._held, attributes={**self._held.attributes, **attributes})

    def _completed(
        self, match: re.Match[str], held: Event | None, time: datetime | None, line: int, thread: str
    ) -> list[Event]:
        detail: dict[str, Attribute] = {
            name: match[name] for name in ("status", "method", "request") if match[name] is not None
        }
        before: list[Event] = []
        if held is None or "request" in held.attributes:  # its first records were not logged
            before = self.flush()
            self._open(match["error"], {}, time, line, thread)
        self._add(detail)
        return before

    def _named(self, event: Event) -> Event:
        attributes = dict(event.attributes)
        path, lid = attributes.get("path"), attributes.get("lid")
        guid = self._names.at_end_of(path) if isinstance(path, str) else None
        kind = "switch" if guid else "node"
        if guid is None and isinstance(lid, int):
            guid = self._names.guid_of(lid)
            kind = "node" if guid is None else "switch" if self._names.is_switch(guid) else "port"
        where = self._names.place_of(guid)
        target = where.text or guid or (f"LID {lid}" if lid else f"the end of route {path}" if path else "a node")
        what = attributes.get("request") or "a request"
        if isinstance(path, str):
            attributes |= self._way(path)
        return replace(
            event,
            node=where.host,
            device=Device(type=kind, uuid=guid),
            message=f"No answer from {target} to {what} ({attributes.get('status', 'error')})",
            attributes={**attributes, **where.attributes()},
        )

    def _way(self, path: str) -> dict[str, Attribute]:
        """Where a route begins, and the switch port by which it comes to its end, as far as the log has named them."""
        found: dict[str, Attribute] = {}
        if self._names.manager is not None:
            found["manager"] = self._names.manager
        before, _, port = path.rpartition(",")
        switch = self._names.at_end_of(before)
        if switch is not None:
            found["via"] = f"{switch}/{port.strip()}"
        return found


def _detail(text: str) -> dict[str, Attribute]:
    """Status, LID and attribute number, wherever a version prints them."""
    found: dict[str, Attribute] = {}
    for match in _DETAIL.finditer(text, 0, 600):
        if match["status"]:
            found.setdefault("status", match["status"])
        elif match["lid"]:
            found.setdefault("lid", int(match["lid"]))
        else:
            found.setdefault("attr", match["attr"].lower())
    return found

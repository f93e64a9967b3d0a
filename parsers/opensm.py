"""The subnet manager's log: links that change state, ports that vanish and return, counters, the manager's own state.

    Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061
      LID range [17, 17] of node:gpu007 mlx5_0                                                    (one line)
    -> {"kind": "port_removed", "node": "gpu007", "device": {"type": "port", "uuid": "0xb83fd20300200061"},
        "attributes": {"lid": 17, "hca": "mlx5_0"}, ...}

Lines bear no year and are in local time. A state change (trap 128) names the switch's LID alone; the notice
after it names its GUID too: the two are one event, with the first one's line.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from parsers.fabric import Place, place
from parsers.parser import Context, Format, ParseError
from parsers.stamp import Stamps
from store.event import Attribute, Device, Event, Severity

HEADER = re.compile(
    r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d{2}:\d{2}:\d{2}) (?P<usec>\d{6}) "
    r"\[[0-9A-F]{1,16}\] 0x(?P<level>[0-9A-Fa-f]{2}) -> (?P<text>.*)",
    re.ASCII | re.DOTALL,
)
# Traps that name a port and a threshold: 129 local link integrity, 130 buffer overrun, 131 flow control
# (InfiniBand Architecture Specification, volume 1, section 14.2.5.1).
_THRESHOLDS = {129: "LocalLinkIntegrityErrors", 130: "ExcessiveBufferOverrunErrors", 131: "FlowControlUpdateTimeout"}
LINK_STATE = 128
# The notice follows its trap within microseconds, but other threads' lines may stand between the two.
NOTICE_S = 0.5
NOTICE_LATE_S = 5.0
NOTICE_LINES = 20

_TRAP = re.compile(
    r"log_trap_info: Received Generic Notice type:\d{1,3} num:(?P<trap>\d{1,5}) "
    r".*from LID:(?P<lid>\d{1,5})(?: Port (?P<port>\d{1,3}))?",
    re.ASCII,
)
_NOTICE = re.compile(
    r"log_notice: Reporting .*[Ll]ink state change.* LID:? ?(?P<lid>\d{1,5})(?:, GUID (?P<guid>0x[0-9a-f]+))?", re.ASCII
)
_REMOVED = re.compile(
    r"\w+: (?P<verb>Removed|Discovered new) port with GUID:(?P<guid>0x[0-9a-f]{1,16}) "
    r"LID range \[(?P<lid>\d{1,5}), ?\d{1,5}\] of node: ?(?P<node>.*)",
    re.ASCII,
)
_CHANGED = re.compile(
    r"\w+: Switch (?P<guid>0x[0-9a-f]{1,16}) (?P<name>.*) port (?P<port>\d{1,3})(?: \((?P<label>[^)]*)\))? "
    r"changed state from (?P<before>\w+) to (?P<after>\w+)",
    re.ASCII,
)
_UNLINKED = re.compile(r"\w+: Unlinking local node (?P<guid>0x[0-9a-f]{1,16}), port (?P<port>\d{1,3})", re.ASCII)
_UNLINKED_PEER = re.compile(r"\s+and remote node (?P<guid>0x[0-9a-f]{1,16}), port (?P<port>\d{1,3})", re.ASCII)
_COUNTER = re.compile(
    r'perfmgr_log_errors: ERR \w+: (?P<counter>\w+) : (?P<count>\d{1,18}) : node "(?P<name>[^"]*)" '
    r"\(NodeGUID: (?P<guid>0x[0-9a-f]{1,16})\) : port (?P<port>\d{1,3})"
    r'(?: connected to "(?P<peer>[^"]*)".*: port (?P<peer_port>\d{1,3}))?',
    re.ASCII,
)
_STATE = re.compile(r"(?P<message>(?:Entering (?P<state>[A-Z_-]+) state|Exiting SM))", re.ASCII)
_ERROR = re.compile(r"(?P<function>\w+): ERR (?P<error>\w{4}): (?P<message>.*)", re.ASCII | re.DOTALL)


class OpensmParser:
    """Decodes lines of opensm.log. Holds a state change until the line that names its switch."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._guids: dict[int, str] = {}
        self._traps: dict[int, Event] = {}  # state changes whose switch is still to be named, by LID
        self._told: dict[int, Event] = {}  # the last one given without its notice, by LID
        self._unlinked: Event | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line; a line without a header belongs to the record before it."""
        header = HEADER.match(text)
        if not header:
            return self._peer(text)
        time = self._stamps.yearless(header["month"], header["day"], f"{header['clock']}.{header['usec']}")
        if time is None and self._stamps.knows_year():
            raise ParseError(f"{text[:15]!r} is no date")
        return [*self._released(time, line), *self._record(header["text"], time, line)]

    def flush(self) -> Iterable[Event]:
        """What is held back: state changes whose switch nobody named, a link whose other end did not follow."""
        held = [*self._traps.values(), *([self._unlinked] if self._unlinked else [])]
        self._told |= self._traps
        self._traps, self._unlinked = {}, None
        return held

    def _released(self, time: datetime | None, line: int) -> list[Event]:
        """What is held back for too long, as of a line."""
        late = {lid: event for lid, event in self._traps.items() if not _near(event, time, line)}
        for lid in late:
            del self._traps[lid]
        self._told |= late
        unlinked, self._unlinked = self._unlinked, None
        return [*late.values(), *([unlinked] if unlinked else [])]

    def _record(self, text: str, time: datetime | None, line: int) -> list[Event]:
        if match := _NOTICE.match(text):
            return self._notice(int(match["lid"]), match["guid"], _event("link_state_change", "warning", time, line))
        event = self._decode(text, time, line)
        if event is None:
            return []
        if (event.kind, event.device.type) == ("link_state_change", "switch"):
            lid = int(event.attributes["lid"] or 0)
            before = self._traps.pop(lid, None)
            self._traps[lid] = event
            return [before] if before else []
        if _UNLINKED.match(text):
            self._unlinked = event
            return []
        return [event]

    def _decode(self, text: str, time: datetime | None, line: int) -> Event | None:
        if match := _TRAP.match(text):
            return self._trap(
                int(match["trap"]), int(match["lid"]), match["port"], _event("counter", "warning", time, line)
            )
        if match := _REMOVED.match(text):
            gone = match["verb"] == "Removed"
            event = _event("port_removed" if gone else "port_discovered", "error" if gone else "info", time, line)
            return _placed(event, match["guid"], place(match["node"]), int(match["lid"]))
        if match := _CHANGED.match(text):
            return _state_change(match, _event("link_state_change", "info", time, line))
        if match := _UNLINKED.match(text):
            device = Device(type="port", uuid=match["guid"], port=int(match["port"]))
            return replace(
                _event("link_down", "error", time, line), device=device, message="Link unlinked by the subnet manager"
            )
        if match := _COUNTER.match(text):
            return _counter(match, _event("counter", "warning", time, line))
        if match := _STATE.match(text):
            attributes: dict[str, Attribute] = {"state": match["state"] or "EXITED"}
            return replace(_event("sm_state", "info", time, line), message=match["message"], attributes=attributes)
        if match := _ERROR.match(text):
            attributes = {"error": match["error"], "function": match["function"]}
            return replace(
                _event("sm_error", "error", time, line), message=match["message"].strip(), attributes=attributes
            )
        return None

    def _trap(self, trap: int, lid: int, port: str | None, event: Event) -> Event | None:
        guid = self._guids.get(lid)
        number = int(port) if port else None
        if trap == LINK_STATE:
            device = Device(type="switch", uuid=guid)
            return replace(
                event, kind="link_state_change", device=device, message="Link state change", attributes={"lid": lid}
            )
        if trap in _THRESHOLDS:
            device = Device(type="switch", uuid=guid, port=number)
            attributes: dict[str, Attribute] = {"lid": lid, "counter": _THRESHOLDS[trap], "trap": trap}
            return replace(event, device=device, message=_THRESHOLDS[trap], attributes=attributes)
        return None

    def _notice(self, lid: int, guid: str | None, alone: Event) -> list[Event]:
        """The notice that follows a trap: it names the switch. Without its trap it is the event itself."""
        if guid:
            self._guids[lid] = guid
        trap = self._traps.pop(lid, None)
        told = self._told.pop(lid, None)
        if trap is not None:
            return [replace(trap, device=replace(trap.device, uuid=self._guids.get(lid)))]
        if told is not None and _near(told, alone.time, alone.line or 0, NOTICE_LATE_S):
            return []
        device = Device(type="switch", uuid=self._guids.get(lid))
        return [replace(alone, device=device, message="Link state change", attributes={"lid": lid})]

    def _peer(self, text: str) -> list[Event]:
        """The second line of an unlinking: the other end."""
        match = _UNLINKED_PEER.match(text)
        if not match or self._unlinked is None:
            return []
        event, self._unlinked = self._unlinked, None
        return [replace(event, attributes={"peer": match["guid"], "peer_port": int(match["port"])})]


def _near(event: Event, time: datetime | None, line: int, within_s: float = NOTICE_S) -> bool:
    """Whether a line may still speak of an event: soon after it, or, where times are unknown, a few lines below."""
    if event.time is None or time is None:
        return line - (event.line or 0) <= NOTICE_LINES
    return 0 <= (time - event.time).total_seconds() <= within_s


def _event(kind: str, severity: Severity, time: datetime | None, line: int) -> Event:
    return Event(time=time, node=None, source="opensm", kind=kind, severity=severity, cause="fabric", line=line)


def _placed(event: Event, guid: str, where: Place, lid: int) -> Event:
    """A port that was removed or found, on its host or switch."""
    verb = "Removed port" if event.kind == "port_removed" else "Discovered new port"
    attributes: dict[str, Attribute] = {} if lid == 0 else {"lid": lid}
    device = Device(type="switch" if where.switch else "port", uuid=guid)
    return replace(
        event,
        node=where.host,
        device=device,
        message=f"{verb} of {where.text or 'an unknown node'}",
        attributes={**attributes, **where.attributes()},
    )


def _state_change(match: re.Match[str], event: Event) -> Event:
    """A switch's port that changed state (MLNX opensm and nvlsm say so, the upstream one does not)."""
    before, after = match["before"], match["after"]
    where = place(match["name"])
    attributes: dict[str, Attribute] = {"from": before, "to": after, "switch": where.switch or match["name"]}
    if match["label"]:
        attributes["label"] = match["label"]
    kind = "link_down" if after == "DOWN" else "link_up" if before == "DOWN" else "link_state_change"
    device = Device(type="port", uuid=match["guid"], port=int(match["port"]))
    return replace(
        event,
        kind=kind,
        severity="error" if kind == "link_down" else "info",
        device=device,
        message=f"{match['name']} port {match['port']} changed state from {before} to {after}",
        attributes=attributes,
    )


def _counter(match: re.Match[str], event: Event) -> Event:
    """An error counter that rose. The peer's GUID is not taken: opensm prints it byte-swapped."""
    where, peer = place(match["name"]), place(match["peer"] or "")
    attributes: dict[str, Attribute] = {"counter": match["counter"], "count": int(match["count"]), **where.attributes()}
    if match["peer"]:
        attributes |= {"peer": peer.text, "peer_port": int(match["peer_port"])}
    device = Device(type="port", uuid=match["guid"], port=int(match["port"]))
    message = f"{match['counter']} +{match['count']} at {match['name']} port {match['port']}"
    return replace(event, node=where.host or peer.host, device=device, message=message, attributes=attributes)


FORMAT = Format(
    name="opensm",
    description="Log of the InfiniBand subnet manager",
    sample="Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
    "LID range [17, 17] of node:gpu007 mlx5_0",
    make=OpensmParser,
    recognises=re.compile(rf"^{HEADER.pattern}", re.ASCII),
)

"""Ports that vanish and return, links that change state, error counters of a port.

drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 LID range [17, 17] of node:gpu007 mlx5_0
osm_pi_rcv_process: Switch 0x200000 Switch1 port 3 changed state from ACTIVE to DOWN
-> {"kind": "link_down", "device": {"type": "port", "uuid": "0x0000000000200000", "port": 3},
    "attributes": {"from": "ACTIVE", "to": "DOWN", "switch": "Switch1"}, ...}
"""

import re
from dataclasses import replace
from datetime import datetime

from parsers.fabric.node_names import NodeNames, canonical_guid, guid_of_gid
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

_PRESENCE = re.compile(
    r"(?:\w{1,64}: )?(?P<verb>Removed|Discovered new) port with GUID:? ?(?P<guid>0x[0-9a-f]{1,16}) "
    r"LID range \[(?P<lid>\d{1,5}), ?\d{1,5}\] of node: ?(?P<node>[^\n]{0,256})",
    re.ASCII,
)
_CHANGED = re.compile(
    r"(?:\w{1,64}: )?Switch (?P<guid>0x[0-9a-f]{1,16}) (?P<name>[^\n]{0,128}?) port (?P<port>\d{1,3})"
    r"(?: \((?P<label>[^)\n]{0,64})\))? changed state from (?P<before>\w{1,16}) to (?P<after>\w{1,16})",
    re.ASCII,
)
_UNLINKED = re.compile(
    r"(?:\w{1,64}: )?Unlinking local node (?P<guid>0x[0-9a-f]{1,16}), port (?P<port>\d{1,3})"
    r"(?:\s{1,20}and remote node (?P<peer>0x[0-9a-f]{1,16}), port (?P<peer_port>\d{1,3}))?",
    re.ASCII,
)
_COUNTER = re.compile(
    r"(?:\w{1,64}: )?ERR (?P<error>\w{4}): (?P<counter>\w{1,64}) : (?P<count>\d{1,18}) : "
    r'node "(?P<name>[^"\n]{0,128})" \(NodeGUID: (?P<guid>0x[0-9a-f]{1,16})\) : port (?P<port>\d{1,3})'
    r'(?: connected to "(?P<peer>[^"\n]{0,128})"[^:\n]{0,16}(?::[^:\n]{0,32})?: port (?P<peer_port>\d{1,3}))?',
    re.ASCII,
)


def decode_port(text: str, names: NodeNames) -> Event | None:
    """The event of a message that speaks of a port; None for another."""
    if match := _PRESENCE.match(text):
        return _presence(match, names)
    if match := _CHANGED.match(text):
        return _changed(match, names)
    if match := _UNLINKED.match(text):
        return _unlinked(match, names)
    if match := _COUNTER.match(text):
        return _counter(match, names)
    return None


def _event(kind: str, device: Device, node: str | None, message: str, attributes: dict[str, Attribute]) -> Event:
    return Event(None, node, "opensm", kind, device=device, message=message, attributes=attributes)


def _presence(match: re.Match[str], names: NodeNames) -> Event:
    """A port that was removed or found, on its host or switch."""
    guid, lid = canonical_guid(match["guid"]), int(match["lid"])
    where = names.place_of(guid, match["node"])
    names.learn(guid, match["node"])
    names.learn_lid(lid, guid, of_switch=where.switch is not None)
    gone = match["verb"] == "Removed"
    attributes: dict[str, Attribute] = {} if lid == 0 else {"lid": lid}
    device = Device(type="switch" if where.switch or names.is_switch(guid) else "port", uuid=guid)
    message = f"{match['verb']} port of {where.text or 'an unknown node'}"
    kind = "port_removed" if gone else "port_discovered"
    return with_kind_meaning(_event(kind, device, where.host, message, {**attributes, **where.attributes()}))


def _changed(match: re.Match[str], names: NodeNames) -> Event:
    """A switch's port that changed state (MLNX opensm and nvlsm say so, the upstream one does not)."""
    before, after, guid = match["before"], match["after"], canonical_guid(match["guid"])
    names.learn(guid, match["name"])
    where = names.place_of(guid, match["name"])
    attributes: dict[str, Attribute] = {"from": before, "to": after, "switch": where.switch or match["name"]}
    if match["label"]:
        attributes["label"] = match["label"]
    kind = "link_down" if after == "DOWN" else "link_up" if before == "DOWN" else "link_state_change"
    device = Device(type="port", uuid=guid, port=int(match["port"]))
    message = f"{match['name']} port {match['port']} changed state from {before} to {after}"
    return with_kind_meaning(
        _event(kind, device, None, message, attributes), "settling" if kind == "link_state_change" else "fabric"
    )


def _unlinked(match: re.Match[str], names: NodeNames) -> Event:
    """A link that the manager takes out of its map; the host of either end is the node."""
    guid = canonical_guid(match["guid"])
    where, far = names.place_of(guid), None
    attributes: dict[str, Attribute] = where.attributes()
    node = where.host
    if match["peer"]:
        far = canonical_guid(match["peer"])
        attributes |= {"peer": names.place_of(far).text or far, "peer_port": int(match["peer_port"])}
        node = node or names.place_of(far).host
    device = Device(type="port", uuid=guid, port=int(match["port"]))
    return with_kind_meaning(
        _event("link_down", device, node, "Link unlinked by the subnet manager", attributes), "fabric"
    )


def _counter(match: re.Match[str], names: NodeNames) -> Event:
    """An error counter that rose, by how much. The peer's GUID is not taken: opensm prints it byte-swapped."""
    guid = canonical_guid(match["guid"])
    names.learn(guid, match["name"])
    where, peer = names.place_of(guid, match["name"]), names.place_of(None, match["peer"] or "")
    attributes: dict[str, Attribute] = {
        "counter": match["counter"],
        "count": int(match["count"]),
        **where.attributes(),
    }
    if match["peer"]:
        attributes |= {"peer": peer.text, "peer_port": int(match["peer_port"])}
    device = Device(type="port", uuid=guid, port=int(match["port"]))
    message = f"{match['counter']} +{match['count']} at {match['name']} port {match['port']}"
    return with_kind_meaning(_event("counter", device, where.host or peer.host, message, attributes), "port")


# Traps: what switches and adapters tell the subnet manager of themselves.
#
#     log_trap_info: Received Generic Notice type:1 num:128 (Link state change) Producer:2 (Switch) from LID:11 TID:0x0
#     log_notice: Reporting Urgent Notice "Link state change" from switch LID 11, GUID 0xb83fd20300100040
#     -> {"kind": "link_state_change", "device": {"type": "switch", "uuid": "0xb83fd20300100040"},
#         "attributes": {"lid": 11, "switch": "leaf02"}, ...}
#
# Trap 128 names the switch's LID alone; the notice that the manager forwards names its GUID: the two are one event.
# Which port it was, neither says. Forms: upstream 3.3.23; older and MLNX builds, whose notice bears a GID.

LINK_STATE = 128
# Traps that name a port and a threshold: 129 local link integrity, 130 buffer overrun, 131 flow control
# (InfiniBand Architecture Specification, volume 1, section 14.2.5.1).
_THRESHOLDS = {129: "LocalLinkIntegrityErrors", 130: "ExcessiveBufferOverrunErrors", 131: "FlowControlUpdateTimeout"}
# The manager's own notices (64 to 67) bear its LID beside the GID of another port.
_OWN_NOTICES = range(64, 68)
# The notice follows its trap within microseconds, but other threads' lines may stand between the two.
NOTICE_S = 0.5
NOTICE_LATE_S = 5.0
NOTICE_LINES = 20
# Traps of one switch whose notices are awaited: opensm ignores the eleventh in a row.
MOST_UNNOTICED = 16
MOST_SWITCHES = 4096

_LID = r"(?P<lid>0x[0-9a-fA-F]{1,4}|\d{1,5})"
_TRAP = re.compile(
    rf"(?:\w{{1,64}}: )?Received Generic Notice type:\w{{1,6}} num:(?P<trap>\d{{1,5}}) "
    rf"[^\n]{{0,200}}?from LID:{_LID}(?: Port (?P<port>\d{{1,3}}))?",
    re.ASCII,
)
_BAD_KEY = re.compile(
    r"(?:\w{1,64}: )?Bad (?P<key>[MPQ])_Key:(?P<value>0x[0-9a-fA-F]{1,16}) on SL:\d{1,3} "
    r"from LID1:(?P<lid>\d{1,5}) QP1:\w{1,16} to LID2:(?P<peer>\d{1,5})",
    re.ASCII,
)
_NOTICE = re.compile(
    r"(?:\w{1,64}: )?Reporting (?P<what>Urgent|Security|Informational|Generic) Notice (?P<text>[^\n]{0,200}?)"
    rf" ?from (?:switch )?LID:? ?{_LID},?"
    r" (?:GUID (?P<guid>0x[0-9a-f]{1,16})|GID:(?:0x[0-9a-f]{16},(?P<low>0x[0-9a-f]{16})|(?P<gid>[0-9a-f:.]{2,45})))",
    re.ASCII,
)
_NOTICE_ALONE = re.compile(
    rf'(?:\w{{1,64}}: )?Reporting [^\n]{{0,64}}"?[Ll]ink state change[^\n]{{0,64}} LID:? ?{_LID}', re.ASCII
)
_NUMBER = re.compile(r"num:(\d{1,5})", re.ASCII)
_ROUTE = re.compile(r"SM class trap 128: Directed Path Dump of \d{1,3} hop path:\s{1,8}Path = (?P<path>[\d,]{1,256})")


class Traps:
    """The traps of one log. Holds a state change until the line that names its switch, or until that is late."""

    def __init__(self, names: NodeNames) -> None:
        self._names = names
        self._waiting: dict[int, Event] = {}  # state changes whose switch is still to be named, by LID
        self._reported: dict[int, list[Event]] = {}  # the last ones given without their notices, by LID
        self._route: str | None = None

    def read(self, text: str, time: datetime | None, line: int) -> list[Event] | None:
        """The events of a message that is a trap or a notice; None for another message."""
        if match := _TRAP.match(text):
            return self._trap(match, time, line)
        if match := _NOTICE.match(text) or _NOTICE_ALONE.match(text):
            return self._notice(match, text, time, line)
        if match := _ROUTE.match(text):
            self._route = match["path"]
            return []
        if match := _BAD_KEY.match(text):
            return [self._bad_key(match, time, line)]
        return None

    def late(self, time: datetime | None, line: int) -> list[Event]:
        """What has waited for too long, as of a line."""
        if not self._waiting:
            return []
        late = {lid: event for lid, event in self._waiting.items() if not _near(event, time, line, NOTICE_S)}
        for lid in late:
            del self._waiting[lid]
            self._tell(lid, late[lid])
        return [self._named(event) for event in late.values()]

    def flush(self) -> list[Event]:
        """What still waits."""
        held, self._waiting = self._waiting, {}
        for lid, event in held.items():
            self._tell(lid, event)
        return [self._named(event) for event in held.values()]

    def _tell(self, lid: int, event: Event) -> None:
        """A state change goes out without its notice, which may still come."""
        self._reported[lid] = [*self._reported.get(lid, [])[1 - MOST_UNNOTICED :], event]
        if len(self._reported) > MOST_SWITCHES:
            del self._reported[next(iter(self._reported))]

    def _is_reported(self, lid: int, time: datetime | None, line: int) -> bool:
        """Whether a notice belongs to a state change that went out before it; each belongs to one."""
        reported = [event for event in self._reported.pop(lid, []) if _near(event, time, line, NOTICE_LATE_S)]
        if len(reported) > 1:
            self._reported[lid] = reported[1:]
        return bool(reported)

    def _named(self, event: Event) -> Event:
        """A state change with what the log has reported of its switch by now."""
        guid = self._names.guid_of(_lid(event))
        where = self._names.place_of(guid)
        # It is a switch that speaks, whatever its description looks like.
        name = where.switch or where.text
        attributes = {**event.attributes, "switch": name} if name else event.attributes
        return replace(event, device=replace(event.device, uuid=guid), attributes=attributes)

    def _trap(self, match: re.Match[str], time: datetime | None, line: int) -> list[Event]:
        number, lid = int(match["trap"]), _number(match["lid"])
        if number == LINK_STATE:
            before = self._waiting.pop(lid, None)
            self._waiting[lid] = _link_state(lid, time, line)
            self._route = None
            if before is None:
                return []
            self._tell(lid, before)
            return [self._named(before)]
        if number not in _THRESHOLDS:
            return []
        guid = self._names.guid_of(lid)
        where = self._names.place_of(guid)
        port = int(match["port"]) if match["port"] else None
        counter = _THRESHOLDS[number]
        attributes: dict[str, Attribute] = {"lid": lid, "counter": counter, "trap": number, **where.attributes()}
        device = Device(type="port" if port is not None else "switch", uuid=guid, port=port)
        event = Event(time, where.host, "opensm", "counter", device=device, message=counter, attributes=attributes)
        return [with_kind_meaning(replace(event, line=line), "port")]

    def _notice(self, match: re.Match[str], text: str, time: datetime | None, line: int) -> list[Event]:
        """The notice that follows a trap: it names the switch. Without its trap it is the event itself."""
        lid, guid = _number(match["lid"]), _guid(match)
        is_link_state = "ink state change" in text or "num:128 " in text
        number = _NUMBER.search(text, 0, 200)
        if guid and not (number and int(number[1]) in _OWN_NOTICES):
            self._names.learn_lid(lid, guid, of_switch=is_link_state)
        if not is_link_state:
            return []
        if guid and self._route:
            self._names.learn_route(self._route, guid)
        self._route = None
        trap = self._waiting.pop(lid, None)
        if trap is not None:
            return [self._named(trap)]
        return [] if self._is_reported(lid, time, line) else [self._named(_link_state(lid, time, line))]

    def _bad_key(self, match: re.Match[str], time: datetime | None, line: int) -> Event:
        """A packet refused for its key: who sent it, by LID."""
        lid, key = int(match["lid"]), f"{match['key']}_Key"
        guid = self._names.guid_of(lid)
        where = self._names.place_of(guid)
        attributes: dict[str, Attribute] = {"lid": lid, "key": key, "value": match["value"], **where.attributes()}
        attributes["peer_lid"] = int(match["peer"])
        message = f"Packet with a bad {key} from LID {lid} to LID {match['peer']}"
        device = Device(type="port", uuid=guid)
        event = Event(time, where.host, "opensm", "key_violation", device=device, message=message, line=line)
        return with_kind_meaning(replace(event, attributes=attributes))


def _link_state(lid: int, time: datetime | None, line: int) -> Event:
    device, attributes = Device(type="switch"), {"lid": lid}
    message = "Link state change"
    event = Event(time, None, "opensm", "link_state_change", device=device, message=message, attributes=attributes)
    return with_kind_meaning(replace(event, line=line), "trap")


def _guid(match: re.Match[str]) -> str | None:
    parts = match.groupdict()
    if text := parts.get("guid") or parts.get("low"):
        return canonical_guid(text)
    return guid_of_gid(parts["gid"]) if parts.get("gid") else None


def _number(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


def _lid(event: Event) -> int:
    lid = event.attributes["lid"]
    return lid if isinstance(lid, int) else 0


def _near(event: Event, time: datetime | None, line: int, within_s: float) -> bool:
    """Whether a line may still speak of an event: soon after it, or, where times are unknown, a few lines below."""
    if event.time is None or time is None:
        return line - (event.line or 0) <= NOTICE_LINES
    return 0 <= (time - event.time).total_seconds() <= within_s

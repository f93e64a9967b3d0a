"""The event log of NVIDIA UFM (event.log): links, ports, nodes and switches of an InfiniBand fabric, cables, UFM.

    2023-12-20 07:46:24.442 [7] [329] WARNING Site [default] [Link] Link [9c05910300a0b0c0_33: fc6a1c0300d0e0f0_1]: Link
      went down: (Switch:leaf-a17:1/17/1)9c05910300a0b0c0:33 - (Computer:gpu007:1)fc6a1c0300d0e0f0:1, cable S/N: MT2
    (one line)
    -> {"kind": "link_down", "code": 329, "node": "gpu007", "time": "2023-12-20T07:46:24.442Z",
        "device": {"type": "port", "uuid": "0x9c05910300a0b0c0", "port": 33},
        "attributes": {"switch": "leaf-a17", "name": "1/17/1", "peer": "gpu007", "peer_port": 1,
                       "cable_serial": "MT2", ...}, ...}

What a code means is a table: `store/catalogs/ufm.csv`. Times are the UFM host's, without a zone. An entry may go on
over several lines; it begins where a line begins with a time.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from parsers.fabric.node_names import FabricNode, fabric_node, guid_of_gid
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from store.catalog_rows import rows
from store.records.event import Attribute, Device, Event, Severity
from store.records.fault_catalog import with_kind_meaning

_TIME = r"(?P<time>\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:[.,]\d{1,6})?)"
_BEGIN = re.compile(
    rf"{_TIME} \[(?P<entry>\d{{1,18}})\] \[(?P<code>\d{{1,6}})\] (?P<word>CRITICAL|WARNING|MINOR|INFO)\b", re.ASCII
)
_HEAD = re.compile(r" (?:\[?Site [^\]]{0,128}\] )?\[(?P<category>[^\[\]]{1,64})\] (?P<type>\w{1,64}) \[", re.ASCII)
# The object ends at a bracket that a colon, or the device's GUID, follows; it may hold brackets itself.
_OBJECT_END = re.compile(r"\](?: \[dev_id: ?(?P<guid>[0-9a-fA-F]{0,16})\])?: ?", re.ASCII)
_PORT_OF = re.compile(
    r"(?:^|/ ?)(?P<what>Switch|Computer|Host|Gateway|Router): ?(?P<host>[^/]{1,200}?) ?/ ?(?P<port>\S{1,64})$"
)
_NAMED = re.compile(r"(?:[^/:]{0,128} / )?(?P<what>Switch|Computer|Host|Module): ?(?P<host>[^\s/]{1,200})")
_GUIDS = re.compile(
    r"(?P<guid>[0-9a-fA-F]{16})_(?P<port>\d{1,3})[^:]{0,200}: ?(?P<peer>[0-9a-fA-F]{16})_(?P<peer_port>\d{1,3})",
    re.ASCII,
)
_END = (
    r"\((?P<what{0}>Switch|Computer|Host|Gateway|Router):(?P<name{0}>[^():]{{1,200}}):(?P<label{0}>[^():]{{1,64}})\)"
    r"(?P<guid{0}>[0-9a-fA-F]{{1,16}}):(?P<port{0}>\d{{1,3}})"
)
_ENDS = re.compile(rf"{_END.format(1)} ?- ?{_END.format(2)}(?:, cable S/N: ?(?P<cable>[\w.-]{{1,64}}))?", re.ASCII)
_PEER = re.compile(r"Peer Port (?P<name>.{1,200}?):(?P<port>[\w/]{1,16}) is considered by SM as unhealthy", re.ASCII)
_UNHEALTHY = re.compile(r"unhealthy due to (?P<reason>\w{1,64})", re.ASCII)
_CABLE = re.compile(r"(?:cable )?S/N:? ?(?P<cable>[A-Z0-9]{6,32})\b", re.ASCII)
_GID = re.compile(r"\b[0-9a-f]{4}:[0-9a-f:.]{10,45}", re.ASCII)
_HOSTS = ("Computer", "Host")
_WORDS: Mapping[str, Severity] = {"CRITICAL": "error", "WARNING": "warning", "MINOR": "warning", "INFO": "info"}
# An entry whose head is broken over more lines than this is none.
MAX_HEAD_LINES = 4
# Names are looked for in so much of an object and of a message.
MOST_NAMED = 512
MOST_MESSAGE = 2048


@dataclass(frozen=True, slots=True)
class UfmCode:
    """What a code means: a kind, how much of a fault it is, the port counter it speaks of."""

    kind: str
    variant: str
    fault: str
    counter: str
    description: str


@cache
def codes() -> Mapping[int, UfmCode]:
    """The shipped table of event codes."""
    return {
        int(row["code"]): UfmCode(row["kind"], row["variant"], row["fault"], row["counter"], row["description"])
        for row in rows("ufm")
    }


@dataclass(frozen=True, slots=True)
class _UfmLocation:
    """What an entry speaks of."""

    node: str | None
    device: Device
    attributes: Mapping[str, Attribute]


class UfmParser:
    """Decodes lines of event.log. Holds an entry whose head goes on in the next line."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._part: list[str] = []
        self._part_line = 0
        self._late: list[Event] = []  # reported beside something broken: an error and an event cannot be given at once

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of the entry whose head a line completes.

        Raises:
            ParseError: an entry before it, or it, has no whole head, or an impossible date.
        """
        if not _BEGIN.match(text):
            events = self._more(text)
        else:
            cut, self._part, self._part_line = self._part, [text], line
            events = self._whole()
            if cut:
                self._late += events
                raise ParseError("an entry is cut short: its head ends before the message")
        late, self._late = self._late, []
        return [*late, *events]

    def flush(self) -> Iterable[Event]:
        """What an error held back.

        Raises:
            ParseError: the last entry is cut short.
        """
        late, self._late = self._late, []
        cut, self._part = self._part, []
        if cut:
            raise ParseError("the last entry is cut short: its head ends before the message")
        return late

    def _more(self, text: str) -> list[Event]:
        """A line that begins no entry: more of a head, or of a message, which its first line tells well enough."""
        if not self._part:
            return []
        self._part.append(text)
        if len(self._part) > MAX_HEAD_LINES:
            self._part = []
            raise ParseError("an entry has no message after its head")
        return self._whole()

    def _whole(self) -> list[Event]:
        """The event of the lines held, where they make a whole head."""
        text = " ".join(self._part)
        begin = _BEGIN.match(text)
        head = begin and _HEAD.match(text, begin.end())
        end = head and _OBJECT_END.search(text, head.end())
        if not begin or not head or not end:
            return []
        self._part = []
        time = self._stamps.iso(begin["time"].replace(",", "."))
        if time is None:
            raise ParseError(f"{begin['time']!r} is no date")
        named, message = text[head.end() : end.start()].strip()[:MOST_NAMED], text[end.end() :].strip()
        where = _where(head["type"], named, end["guid"] or "", message[:MOST_MESSAGE])
        event = Event(
            time=time,
            node=where.node,
            source="ufm",
            kind="fabric_event",
            code=int(begin["code"]),
            cause="fabric",
            device=where.device,
            message="" if message == "None" else message,
            attributes={"entry": int(begin["entry"]), **where.attributes},
            line=self._part_line,
        )
        return [_judge(event, begin["word"])]


def _judge(event: Event, word: str) -> Event:
    """The event with its code's kind, as grave as the table and UFM's word say."""
    code = codes().get(event.code or 0)
    event = replace(event, attributes={**event.attributes, "ufm_severity": word})
    if code is None:
        return replace(event, severity=_WORDS[word], action="none" if word == "INFO" else "watch")
    attributes = {**event.attributes, "counter": code.counter} if code.counter else event.attributes
    event = replace(event, kind=code.kind, attributes=attributes, message=event.message or code.description)
    reason = event.attributes.get("reason")
    event = with_kind_meaning(event, "manual" if code.kind == "port_unhealthy" and reason == "MANUAL" else code.variant)
    if code.fault == "maybe":
        return replace(event, severity="info" if _WORDS[word] == "info" else "warning")
    return event


def _where(kind: str, named: str, guid: str, message: str) -> _UfmLocation:
    """What an entry speaks of: the ends that its message names, else its object."""
    if ends := _ENDS.search(message):
        return _link(ends)
    attributes = _fields(message)
    uuid = f"0x{guid.lower()}" if guid else None
    if link := _GUIDS.search(named):
        attributes |= {"peer": f"0x{link['peer'].lower()}", "peer_port": int(link["peer_port"])}
        device = Device(type="port", uuid=f"0x{link['guid'].lower()}", port=int(link["port"]))
        return _UfmLocation(None, device, attributes)
    port = _PORT_OF.search(named)
    owner = port or _NAMED.match(named)
    if owner is None:
        attributes["object"] = f"{kind} {named}".strip()
        gid = _GID.search(message)
        uuid = uuid or (guid_of_gid(gid[0]) if gid else None)
        return _UfmLocation(
            None, Device(type="port" if uuid or kind in ("IBPort", "Link") else "fabric", uuid=uuid), attributes
        )
    where = FabricNode(switch=owner["host"].strip()) if owner["what"] not in _HOSTS else fabric_node(owner["host"])
    name = where.switch or owner["host"].strip()
    attributes |= where.attributes()
    if port is None:
        device = Device(type="switch" if where.switch else "node", uuid=uuid or where.switch)
        return _UfmLocation(where.host, device, attributes)
    attributes["name"] = port["port"]
    return _UfmLocation(
        where.host, Device("port", uuid=uuid or f"{name}/{port['port']}", port=_number(port["port"])), attributes
    )


def _fields(message: str) -> dict[str, Attribute]:
    """What a message names beside its object: a cable, a reason, the far end."""
    attributes: dict[str, Attribute] = {}
    if cable := _CABLE.search(message):
        attributes["cable_serial"] = cable["cable"]
    if reason := _UNHEALTHY.search(message):
        attributes["reason"] = reason["reason"]
    if peer := _PEER.search(message):
        far, port = fabric_node(peer["name"]), peer["port"]
        attributes |= {"peer": far.host or far.switch or far.text, "peer_port": _number(port) or port}
    return attributes


def _number(port: str) -> int | None:
    """A port's number; None for a cage and lane such as 1/17/1."""
    return int(port) if port.isascii() and port.isdigit() and len(port) < 4 else None


def _link(ends: re.Match[str]) -> _UfmLocation:
    """A link by its two ends. The near one is the first, or the switch's where the first is a host's."""
    near, far = ("1", "2") if ends["what1"] not in _HOSTS else ("2", "1")
    hosts = [fabric_node(ends[f"name{end}"]).host for end in (near, far) if ends[f"what{end}"] in _HOSTS]
    attributes: dict[str, Attribute] = {
        "name": ends[f"label{near}"],
        "peer": fabric_node(ends[f"name{far}"]).host or ends[f"name{far}"],
        "peer_port": int(ends[f"port{far}"]),
        "peer_uuid": f"0x{ends[f'guid{far}'].lower()}",
    }
    if ends[f"what{near}"] not in _HOSTS:
        attributes["switch"] = ends[f"name{near}"]
    if ends["cable"]:
        attributes["cable_serial"] = ends["cable"]
    device = Device(type="port", uuid=f"0x{ends[f'guid{near}'].lower()}", port=int(ends[f"port{near}"]))
    return _UfmLocation(next(iter(hosts), None), device, attributes)


FORMAT = Format(
    name="ufm",
    description="Event log of NVIDIA UFM",
    sample="2023-12-20 07:46:24.442 [1287] [329] WARNING [Link] Link [9c05910300a0b0c0_33: fc6a1c0300d0e0f0_8]: Link "
    "went down: (Switch:leaf-a17:1/17/1)9c05910300a0b0c0:33 - (Switch:spine-b04:1/4/2)fc6a1c0300d0e0f0:8, "
    "cable S/N: MT2400FT00001",
    make=UfmParser,
    testimony="machine",
    recognises=re.compile(rf"^{_BEGIN.pattern}", re.ASCII),
)

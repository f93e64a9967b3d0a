"""The fabric's topology, as `ibnetdiscover` prints it: which switch port is cabled to which peer.

    Switch	40 "S-b83fd20300100080"		# "MF0;leaf03:MQM8700/U1" enhanced port 0 lid 21 lmc 0
    [1]	"H-b83fd20300200100"[1](b83fd20300200101) 		# "gpu017 mlx5_0" lid 4 4xHDR
    [39]	"S-b83fd2030010fa00"[3]		# "MF0;spine01:MQM8700/U1" lid 3 4xHDR

gives for the second line as a link (`links`, what an archive's topology is loaded by) and as an event (`FORMAT`):

    {"switch": "leaf03", "port": 1, "peer": "gpu017", "peer_port": 1, "peer_type": "hca", "hca": "mlx5_0",
     "switch_guid": "0xb83fd20300100080", "switch_lid": 21, "peer_guid": "0xb83fd20300200100",
     "peer_port_guid": "0xb83fd20300200101", "peer_lid": 4, "rate": "4xHDR"}
    {"kind": "fabric_link", "severity": "info", "node": "gpu017",
     "device": {"type": "port", "uuid": "0xb83fd20300100080", "port": 1},
     "attributes": {"switch": "leaf03", "peer": "gpu017 mlx5_0", "peer_port": 1, "lid": 21, "rate": "4xHDR"}, ...}

A switch bears the name within its description, a host the first word of its HCA's description (the host name), the
adapter the second. Where two switches bear one name each is called by its GUID. A cable that only the block of an
adapter tells of (`Ca`) is taken from there. A topology is a state and no happening: its events are informational, one
per cable, and without a time.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from parsers.fabric.node_names import FabricNode, fabric_node, fabric_switch
from parsers.text.parser import MAX_LINE, Context, Format, OnError, ParseError
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

# A link's other end is remembered until its own line comes, so that a cable is reported once.
MOST_ENDS = 200_000

_BLOCK = re.compile(r'(?P<type>Switch|Ca|Rt)\s+\d+\s+"(?P<id>[^"]+)"(?:[^#]*#\s*"(?P<name>[^"]*)")?')
_CABLE = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\([0-9a-fA-F]+\))?(?:\[ext \d+\])?\s+"
    r'"(?P<peer>[SHR]-[0-9a-fA-F]+)"\[(?P<peer_port>\d{1,3})\]'
    r'(?:[^#]*#(?:\s*lid \d+ lmc \d+)?\s*"(?P<name>[^"]*)")?'
)

Link = dict[str, str | int]
# Cables of one topology that are held; a fabric has some 50,000 LIDs of up to 64 ports in use.
MOST_LINKS = 400_000
_OWN_LID = re.compile(r"#\s*lid (?P<lid>\d{1,5}) lmc", re.ASCII)
_PEER_LID = re.compile(r'"\s+lid (?P<lid>\d{1,5})', re.ASCII)
_PORT_GUID = re.compile(r"^\[\d{1,3}\]\((?P<own>[0-9a-fA-F]{1,16})\)|\]\((?P<peer>[0-9a-fA-F]{1,16})\)", re.ASCII)


@dataclass(slots=True)
class _SwitchCables:
    """The cables of a topology in the making, and who bears which name."""

    by_port: dict[tuple[str, int], Link] = field(default_factory=dict)  # of each switch by its id
    names: dict[str, str] = field(default_factory=dict)  # of each switch's id

    def links(self) -> Iterator[Link]:
        """Every cable by the names of its ends; a name that two switches bear is none of theirs."""
        bearers = Counter(self.names.values())
        for link in self.by_port.values():
            for end in ("switch", "peer") if link["peer_type"] == "switch" else ("switch",):
                own = str(link[end])
                name = self.names.get(own, own)
                link[end] = name if bearers[name] <= 1 else _guid_of(own)
            yield link


def links(lines: Iterable[str], on_error: OnError | None = None) -> Iterator[Link]:
    """Every cable of a topology (`store.records.topology.FabricLink`), in the order of the text.

    A broken row is reported to `on_error` and skipped.
    """
    cabling, block = _SwitchCables(), None
    for number, line in enumerate(lines, start=1):
        text = line[:MAX_LINE].strip()
        found = _BLOCK.match(text)
        if found:
            block = found
            if block["type"] == "Switch":
                cabling.names[block["id"]] = switch_name(block["name"] or block["id"])
        elif block is not None and text.startswith("["):
            cable = _CABLE.match(text)
            if cable:
                _take(cabling, block, cable, text)
            elif on_error is not None:
                on_error(number, ParseError(f"{text[:60]!r} is no port of a switch: run ibnetdiscover anew"))
    yield from cabling.links()


def _take(cabling: _SwitchCables, block: re.Match[str], cable: re.Match[str], text: str) -> None:
    """Keep a cable; what the block of its adapter tells of it alone goes to the switch's end."""
    is_switch = cable["peer"].startswith("S-")
    if block["type"] != "Switch":
        key = cable["peer"], int(cable["peer_port"])
        if is_switch and key not in cabling.by_port and len(cabling.by_port) < MOST_LINKS:
            cabling.names.setdefault(cable["peer"], switch_name(cable["name"] or cable["peer"]))
            cabling.by_port[key] = _of_adapter(block, cable, text)
        return
    link: Link = {
        "switch": block["id"],
        "port": int(cable["port"]),
        "peer": cable["peer"],
        "peer_port": int(cable["peer_port"]),
        "peer_type": "switch" if is_switch else "hca",
        "switch_guid": _guid_of(block["id"]),
        "peer_guid": _guid_of(cable["peer"]),
    }
    if is_switch:
        cabling.names.setdefault(cable["peer"], switch_name(cable["name"] or cable["peer"]))
    else:
        link |= _host(cable["name"], cable["peer"])
    rest = block.string[block.end() :]
    _put(link, "switch_lid", _SWITCH_LID.search(rest), "lid")
    guid = next((match["peer"] for match in _PORT_GUID.finditer(text) if match["peer"]), None)
    _add_common(link, guid, _PEER_LID.search(text), text)
    if len(cabling.by_port) < MOST_LINKS:
        cabling.by_port[block["id"], int(cable["port"])] = link


def _of_adapter(block: re.Match[str], cable: re.Match[str], text: str) -> Link:
    """The cable of an adapter's block, as the switch has it."""
    link: Link = {
        "switch": cable["peer"],
        "port": int(cable["peer_port"]),
        "peer_port": int(cable["port"]),
        "peer_type": "hca",
        "switch_guid": _guid_of(cable["peer"]),
        "peer_guid": _guid_of(block["id"]),
        **_host(block["name"], block["id"]),
    }
    _put(link, "switch_lid", _PEER_LID.search(text), "lid")
    guid = next((match["own"] for match in _PORT_GUID.finditer(text) if match["own"]), None)
    _add_common(link, guid, _OWN_LID.search(text), text)
    return link


def _host(description: str | None, identity: str) -> Link:
    """The host and the adapter of a description: gpu017 and mlx5_0."""
    host, _, adapter = (description or "").strip().partition(" ")
    words = adapter.split()
    return {"peer": host or identity, **({"hca": words[0]} if words else {})}


def _add_common(link: Link, port_guid: str | None, lid: re.Match[str] | None, text: str) -> None:
    if port_guid is not None and link["peer_type"] == "hca":
        link["peer_port_guid"] = f"0x{int(port_guid, 16):016x}"
    _put(link, "peer_lid", lid, "lid")
    if rate := _RATE.search(text):
        link["rate"] = rate["rate"]


def _put(link: Link, name: str, found: re.Match[str] | None, group: str) -> None:
    if found is not None:
        link[name] = int(found[group])


def switch_name(description: str) -> str:
    """The short name of a switch: leaf03 of `MF0;leaf03:MQM8700/U1`; the description itself where it has none."""
    found = re.match(r"(?:MF0;)?([^:;/]+)", description)
    return (found[1].strip() if found else "") or description


_SWITCH_LID = re.compile(r" lid (?P<lid>\d{1,5})", re.ASCII)
_RATE = re.compile(r" (?P<rate>\d{1,2}x[A-Z]\w{2,6})\s*$", re.ASCII)
_ROW = re.compile(
    r"(?P<type>SW|CA|RT) {1,6}(?P<lid>\d{1,5}) {1,4}(?P<port>\d{1,3}) (?P<guid>0x[0-9a-f]{16}) (?P<width>\d{1,2})x "
    r"(?P<speed>\S{2,8}) - (?P<peer_type>SW|CA|RT) {1,6}(?P<peer_lid>\d{1,5}) {1,4}(?P<peer_port>\d{1,3}) "
    r"(?P<peer_guid>0x[0-9a-f]{16}) \( '(?P<name>[^']{0,128})' - '(?P<peer>[^']{0,128})' \)",
    re.ASCII,
)


class IbnetdiscoverParser:
    """Decodes a topology, and the list of ports that `-p` prints. Holds the switch of the present block."""

    def __init__(self, _context: Context) -> None:
        self._block: re.Match[str] | None = None
        self._reported: set[tuple[str, int]] = set()

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of a cable, at the end that comes first.

        Raises:
            ParseError: a row of a switch that is no port.
        """
        if block := _BLOCK.match(text.strip()):
            self._block = block if block["type"] == "Switch" else None
            return []
        if row := _ROW.match(text):
            ends = ((row["guid"], int(row["port"])), (row["peer_guid"], int(row["peer_port"])))
            attributes: dict[str, Attribute] = {"lid": int(row["lid"]), "rate": f"{row['width']}x{row['speed']}"}
            places = (_place(row["type"], row["name"]), _place(row["peer_type"], row["peer"]))
            return self._cable(ends, places, attributes, line)
        if self._block is None or not text.strip().startswith("["):
            return []
        cable = _CABLE.match(text.strip())
        if cable is None:
            raise ParseError(f"{text.strip()[:60]!r} is no port of a switch: run ibnetdiscover anew")
        return self._switch_port(self._block, cable, text, line)

    def flush(self) -> Iterable[Event]:
        """Nothing is held."""
        return []

    def _switch_port(self, block: re.Match[str], cable: re.Match[str], text: str, line: int) -> list[Event]:
        own, far = _guid_of(block["id"]), _guid_of(cable["peer"])
        ends = ((own, int(cable["port"])), (far, int(cable["peer_port"])))
        attributes: dict[str, Attribute] = {}
        if lid := _SWITCH_LID.search(block.string[block.end() :]):
            attributes["lid"] = int(lid[1])
        if rate := _RATE.search(text):
            attributes["rate"] = rate["rate"]
        peer = _place("SW" if cable["peer"].startswith("S-") else "CA", cable["name"] or cable["peer"])
        return self._cable(ends, (_place("SW", block["name"] or block["id"]), peer), attributes, line)

    def _cable(
        self,
        ends: tuple[tuple[str, int], tuple[str, int]],
        places: tuple[FabricNode, FabricNode],
        extra: dict[str, Attribute],
        line: int,
    ) -> list[Event]:
        (guid, port), (_, peer_port) = ends
        if ends[0] in self._reported:
            self._reported.discard(ends[0])
            return []
        if len(self._reported) < MOST_ENDS:
            self._reported.add(ends[1])
        where, peer = places
        attributes: dict[str, Attribute] = {**where.attributes(), "peer": peer.text, "peer_port": peer_port, **extra}
        device = Device(type="port", uuid=guid, port=port)
        node = where.host or peer.host
        event = Event(None, node, "ibnetdiscover", "fabric_link", device=device, attributes=attributes, line=line)
        return [with_kind_meaning(event)]


def _place(kind: str, description: str) -> FabricNode:
    return fabric_switch(description) if kind == "SW" else fabric_node(description)


def _guid_of(identity: str) -> str:
    """`S-b83fd20300100080` is the switch with the GUID 0xb83fd20300100080; another form stays as it is."""
    digits = identity[2:]
    return f"0x{digits.lower()}" if re.fullmatch(r"[0-9a-fA-F]{16}", digits) else identity


FORMAT = Format(
    name="ibnetdiscover",
    description="Topology of an InfiniBand fabric (infiniband-diags)",
    sample="CA     4  1 0xb83fd20300200101 4x HDR - SW    21  1 0xb83fd20300100080 "
    "( 'gpu017 mlx5_0' - 'MF0;leaf03:MQM8700/U1' )",
    make=IbnetdiscoverParser,
    testimony="machine",
    recognises=re.compile(
        r'^(?:Switch|Ca|Rt)\s\d{1,3} "[SHR]-[0-9a-f]{16}"|^\[\d{1,3}\](?:\([0-9a-f]{1,16}\))?(?:\[ext \d{1,3}\])?\s'
        r'"[SHR]-[0-9a-f]{16}"\[|^(?:SW|CA|RT) {1,6}\d{1,5} {1,4}\d{1,3} 0x[0-9a-f]{16} \d{1,2}x ',
        re.ASCII,
    ),
)

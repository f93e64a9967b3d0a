"""Links that run below what they could, or wait for the subnet manager, as `iblinkinfo` prints them.

    0xb83fd20300200171 "  gpu024 mlx5_0"     20    1[  ] ==( 1X        53.125 Gbps Active/  LinkUp)==>
      0xb83fd20300100080     21    8[  ] "MF0;leaf03:MQM8700/U1" (Could be 4X )                     (one line)
    -> {"kind": "link_degraded", "node": "gpu024",
        "device": {"type": "port", "uuid": "0xb83fd20300200171", "port": 1},
        "attributes": {"width_now": "1X", "width_capable": "4X", "speed_now": "53.125 Gbps", "peer": ...}, ...}

Both forms are read, in blocks and with --line, of the Perl tool of infiniband-diags 1.4 too. Each link is told once,
at the end that comes first. A 4X link whose ports could do 8X or 12X is no more than information: its cable cannot.
A port that is down and has no peer may never have been cabled: that is no event; one that somebody has shut
(`Disabled`) is a `port_disabled`, which tells it from one that failed. With --diff a link that was up in the
cache (`<`) and is down now (`>`) is a `link_down`, and the other way a `link_up`. The tool prints no time: events have
none.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from parsers.fabric.node_names import FabricNode, fabric_node, fabric_switch
from parsers.formats.ibnetdiscover import switch_name
from parsers.text.parser import MAX_LINE, Context, Format
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning
from store.records.node import FabricLink

_NODE = re.compile(
    r"(?:[<>] )?(?P<type>Switch|CA|Router):? (?:(?P<guid>0x[0-9a-f]{1,16}) )?(?P<name>.{0,128}):\s*$", re.ASCII
)
_PORT = re.compile(
    r"(?P<diff>[<>] )?\s{0,12}(?:(?P<guid>0x[0-9a-f]{1,16}) {1,8})?(?:\"(?P<name>[^\"]{0,128})\" )?"
    r"\s{0,12}(?P<lid>\d{1,5}) {1,8}(?P<port>\d{1,3})\[[ \d]{0,4}\] {1,2}==\((?P<link>[^=]{1,160})==>"
    r" {0,20}(?:(?P<peer_guid>0x[0-9a-f]{16}) )? {0,8}(?:(?P<peer_lid>\d{1,5}) {1,8}(?P<peer_port>\d{1,3}))?"
    r"\[[ \d]{0,4}\] \"(?P<peer>[^\"]{0,128})\" \((?P<could>.{0,200})",
    re.ASCII,
)
_SHUT = re.compile(
    r"(?:> )?\s{0,12}(?:(?P<guid>0x[0-9a-f]{1,16}) {1,8})?(?:\"(?P<name>[^\"]{0,128})\" )?"
    r"\s{0,12}(?P<lid>\d{1,5}) {1,8}(?P<port>\d{1,3})\[[ \d]{0,4}\] {1,2}==\([^=]{1,160}/ {0,12}Disabled\)==>",
    re.ASCII,
)
_LINK = re.compile(
    r" {0,40}(?:(?P<width>\d{1,2}X) {1,20}(?P<speed>[\w.][^/]{0,40}?) {1,8})?"
    r"(?P<state>[A-Za-z]{2,12}) {0,8}/ {0,12}(?P<physical>[A-Z][A-Za-z]{2,24})",
    re.ASCII,
)
_COULD = re.compile(
    r"Could be (?:(?P<width>\d{1,2}X)|(?P<speed>[\d.]{1,12} Gbps(?: \(FDR10\))?|FDR10|[A-Z]DR\w{0,3}))", re.ASCII
)
# Not yet taken up by a subnet manager, as the tool abbreviates and as libibmad names it.
_WAITING = frozenset({"Init", "Initialize", "Armed", "Arm"})
# Ends that were reported already. A link is at two ports; a fabric has some 50,000 LIDs of up to 64 ports in use.
MOST_ENDS = 200_000

_End = tuple[str, int]


class IblinkinfoParser:
    """Decodes one run's output. Holds the present block's node, the ends that were told, and --diff's first half."""

    def __init__(self, _context: Context) -> None:
        self._guid: str | None = None
        self._where = FabricNode()
        self._reported: set[_End] = set()
        self._before: tuple[_End, re.Match[str], re.Match[str]] | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one port's line."""
        if (shut := _SHUT.match(text)) and not text.startswith("> "):
            return [replace(self._shut(shut), line=line)]
        if match := _PORT.match(text):
            link = _LINK.match(match["link"])
            if link is None:
                return []
            if match["name"] is not None:
                self._where = fabric_node(match["name"])
            event = self._differing(match, link) if match["diff"] else self._judged(match, link)
            return [replace(event, line=line)] if event else []
        if match := _NODE.match(text):
            self._guid = match["guid"]
            self._where = fabric_switch(match["name"]) if match["type"] == "Switch" else fabric_node(match["name"])
        return []

    def flush(self) -> Iterable[Event]:
        """Nothing is held that could still be reported."""
        return []

    def _shut(self, match: re.Match[str]) -> Event:
        """A port that somebody has shut."""
        guid = match["guid"] or self._guid
        where = fabric_node(match["name"]) if match["name"] is not None else self._where
        attributes: dict[str, Attribute] = {"lid": int(match["lid"]), **where.attributes()}
        device = Device(type="port", uuid=f"0x{int(guid, 16):016x}" if guid else None, port=int(match["port"]))
        event = Event(None, where.host, "iblinkinfo", "port_disabled", device=device, attributes=attributes)
        return with_kind_meaning(event)

    def _judged(self, match: re.Match[str], link: re.Match[str]) -> Event | None:
        """The event of a link with a peer that is not as it should be."""
        if not match["peer_port"]:
            return None
        could = _capable(match["could"])
        waiting = link["state"] in _WAITING or link["physical"] == "LinkErrorRecovery"
        if not waiting and not could:
            return None
        if (match["lid"], int(match["port"])) in self._reported:
            return None
        if len(self._reported) < MOST_ENDS:
            self._reported.add((match["peer_lid"], int(match["peer_port"])))
        event = self._event("link_inactive" if waiting else "link_degraded", match, link)
        event = replace(event, attributes={**event.attributes, **could})
        return with_kind_meaning(event, "wider" if not waiting and _only_wider(link["width"], could) else "")

    def _differing(self, match: re.Match[str], link: re.Match[str]) -> Event | None:
        """What --diff shows: the line of the cache, then the line of now."""
        end = (match["guid"] or self._guid or match["lid"], int(match["port"]))
        before, self._before = self._before, None
        if match["diff"] == "< ":
            self._before = (end, match, link)
            return None
        if before is None or before[0] != end:
            return None
        was_down, is_down = before[2]["state"] == "Down", link["state"] == "Down"
        if is_down and not was_down:
            return with_kind_meaning(self._event("link_down", before[1], link), "fabric")
        if was_down and not is_down:
            return with_kind_meaning(self._event("link_up", match, link), "fabric")
        return None

    def _event(self, kind: str, match: re.Match[str], link: re.Match[str]) -> Event:
        """An event at one end; `match` is the line that names the peer."""
        guid, peer = match["guid"] or self._guid, fabric_node(match["peer"])
        attributes: dict[str, Attribute] = {
            "lid": int(match["lid"]),
            **self._where.attributes(),
            "state": link["state"],
            "physical_state": link["physical"],
        }
        if link["width"]:
            attributes |= {"width_now": link["width"], "speed_now": link["speed"]}
        if match["peer_port"]:
            attributes |= {"peer": peer.text, "peer_port": int(match["peer_port"])}
        device = Device(type="port", uuid=f"0x{int(guid, 16):016x}" if guid else None, port=int(match["port"]))
        node = self._where.host or peer.host
        return Event(None, node, "iblinkinfo", kind, device=device, attributes=attributes)


def links(lines: Iterable[str]) -> Iterator[FabricLink]:
    """Every cable of a switch that the output names, up or not; each end of one between switches."""
    block: tuple[bool, str | None, str] | None = None  # whether it is a switch's, its GUID, its description
    for line in lines:
        text = line[:MAX_LINE]
        if match := _NODE.match(text):
            block = match["type"] == "Switch", match["guid"], match["name"].strip()
            continue
        found = _PORT.match(text)
        if found is None or not found["peer_port"]:
            continue
        own, guid = found["name"], found["guid"]
        if own is None and block is not None:
            is_switch, own = block[0], block[2]
            guid = block[1] or guid
        else:
            is_switch = own is not None and fabric_node(own).switch is not None
        if own is not None:
            yield from _cable(found, is_switch, own.strip(), guid)


def _cable(found: re.Match[str], is_switch: bool, own: str, guid: str | None) -> Iterator[FabricLink]:
    """The cable of a port as its switch has it; none where neither end is a switch."""
    peer = fabric_node(found["peer"])
    rate = _LINK.match(found["link"])
    near = own, _guid(guid), int(found["lid"]), int(found["port"])
    far = found["peer"].strip(), _guid(found["peer_guid"]), int(found["peer_lid"]), int(found["peer_port"])
    if not is_switch:
        if peer.switch is None:
            return
        near, far = far, near
    (switch, switch_guid, switch_lid, port), (name, peer_guid, peer_lid, peer_port) = near, far
    node = fabric_node(name)
    is_trunk = is_switch and node.switch is not None
    yield FabricLink(
        switch_name(switch),
        port,
        switch_name(name) if is_trunk else (name.split() or [peer_guid or f"lid {peer_lid}"])[0],
        peer_port,
        "switch" if is_trunk else "hca",
        switch_guid=switch_guid,
        switch_lid=switch_lid,
        peer_guid=peer_guid if is_trunk else None,
        # The tool prints the GUID of an adapter's port where ibnetdiscover has both.
        peer_port_guid=None if is_trunk else peer_guid,
        peer_lid=peer_lid,
        hca=None if is_trunk else node.hca,
        rate=None if rate is None or not rate["width"] else f"{rate['width'].lower()} {rate['speed']}",
    )


def _guid(text: str | None) -> str | None:
    return None if text is None else f"0x{int(text, 16):016x}"


def _only_wider(width: str | None, could: dict[str, Attribute]) -> bool:
    """Whether a full 4X link lacks nothing but a form that 4X cables do not carry."""
    return width == "4X" and could.get("width_capable") in ("8X", "12X") and "speed_capable" not in could


def _capable(text: str) -> dict[str, Attribute]:
    """Width and speed that both ends support, where the link has less."""
    found: dict[str, Attribute] = {}
    for match in _COULD.finditer(text):
        if match["width"]:
            found["width_capable"] = match["width"]
        else:
            found["speed_capable"] = match["speed"]
    return found


FORMAT = Format(
    name="iblinkinfo",
    description="State of a fabric's links (infiniband-diags)",
    sample='0xb83fd20300200171 "                 gpu024 mlx5_0"     20    1[  ] ==( 1X        53.125 Gbps Active/  '
    'LinkUp)==>  0xb83fd20300100080     21    8[  ] "MF0;leaf03:MQM8700/U1" (Could be 4X )',
    make=IblinkinfoParser,
    testimony="machine",
    recognises=re.compile(r"^(?!\s{0,16}Link info)[^=]{0,200}\d\[[ \d]{0,4}\] {1,2}==\([^=]{1,160}==>", re.ASCII),
    loosely=r"\] {1,2}==\(",
)

"""The links of a fabric as opensm lists them: `opensm-subnet.lst`, written anew at the end of each of its heavy sweeps.

    { SW Ports:28 SystemGUID:b83fd20300100000 NodeGUID:b83fd20300100000 PortGUID:b83fd20300100000 VenID:000000
      DevID:0000 Rev:000000A1 {MF0;leaf01:MQM8700/U1} LID:0002 PN:21 } { SW Ports:28 ... {MF0;spine01:MQM8700/U1}
      LID:0006 PN:01 } PHY=4x LOG=ACT SPD=50                                                         (one line)
    -> SubnetLink(near=SubnetEnd("SW", 40, 0xb83fd20300100000, ..., port=33), far=SubnetEnd("SW", ..., port=1))

Written at every level of the log, into `dump_files_dir` (`/var/log`). A link has a line at each of its ends; one that
the sweep did not find has none. Ports, LIDs and the count of ports are hexadecimal (dump_topology_node in opensm's
osm_dump.c). A host chooses its own description, up to 64 bytes: too few for an end of a link.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from parsers.fabric.node_names import fabric_node
from parsers.formats.ibnetdiscover import switch_name
from store.records.node import FabricLink

_END = (
    r"\{ (SW|CA|Rt|\*\*)(?:-SM)? Ports:([0-9A-F]{2}) SystemGUID:[0-9a-f]{16} NodeGUID:([0-9a-f]{16})"
    r" PortGUID:([0-9a-f]{16}) VenID:[0-9A-F]{6,8} DevID:[0-9A-F]{4} Rev:[0-9A-F]{8}"
    r" \{(.{0,64}?)\} LID:([0-9A-F]{4}) PN:([0-9A-F]{2}) \}"
)
_ROW = re.compile(_END + " " + _END + r" PHY=\S{1,8} LOG=([A-Z]{3})\b")
_DOWN = "DWN"


class SubnetEnd(NamedTuple):
    """One end of a link. `type` is SW, CA (an adapter) or Rt, `ports` how many its node has."""

    type: str
    ports: int
    guid: int
    port_guid: int
    name: str
    lid: int
    port: int


class SubnetLink(NamedTuple):
    """A link as one of its ends has it."""

    near: SubnetEnd
    far: SubnetEnd


def listed_links(lines: Iterable[str]) -> Iterator[SubnetLink]:
    """Each link that is up, at each of its ends; a line of another form says nothing."""
    for line in lines:
        match = _ROW.match(line)
        if match is not None and match[15] != _DOWN:
            found = match.groups()
            yield SubnetLink(_end(found[:7]), _end(found[7:14]))


def listed_trunks(lines: Iterable[str]) -> Iterator[SubnetLink]:
    """The same of links between two switches: few lines of many, and only these are read whole."""
    between = (line for line in lines if line.startswith("{ SW") and "} { SW" in line)
    return (link for link in listed_links(between) if link.near.type == link.far.type == "SW")


def links(lines: Iterable[str]) -> Iterator[FabricLink]:
    """Every cable of a switch; each end of one between switches."""
    for near, far in listed_links(lines):
        if near.type != "SW":
            continue
        is_trunk, node = far.type == "SW", fabric_node(far.name)
        yield FabricLink(
            switch_name(near.name),
            near.port,
            switch_name(far.name) if is_trunk else (far.name.split() or [hexadecimal(far.guid)])[0],
            far.port,
            "switch" if is_trunk else "hca",
            switch_guid=hexadecimal(near.guid),
            switch_lid=near.lid,
            peer_guid=hexadecimal(far.guid),
            peer_port_guid=None if is_trunk else hexadecimal(far.port_guid),
            peer_lid=far.lid,
            hca=None if is_trunk else node.hca,
        )


def hexadecimal(guid: int) -> str:
    """A GUID as records have it."""
    return f"0x{guid:016x}"


def _end(found: tuple[str, ...]) -> SubnetEnd:
    kind, ports, guid, port_guid, name, lid, port = found
    return SubnetEnd(kind, int(ports, 16), int(guid, 16), int(port_guid, 16), name, int(lid, 16), int(port, 16))

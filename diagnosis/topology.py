"""Where nodes hang: the leaf switch of each, from the node table, else from the cabling."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from store import schema
from store.event import Device
from store.incident import Incident


@dataclass(frozen=True, slots=True)
class Topology:
    """`leaf` of each node; `switches` that are known by the name or GUID that cables give them."""

    leaf: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()

    def switch_of(self, leaf: str) -> Device:
        """The device that stands for a leaf switch."""
        return Device(type="switch", uuid=leaf)

    def concerns(self, incident: Incident, nodes: Collection[str] | None) -> bool:
        """Whether an incident may have stopped work on these nodes: on one of them, or in the fabric between them."""
        if nodes is None or incident.node in nodes:
            return True
        return incident.node is None and incident.cause == "fabric"


def read_topology(connection: sa.Connection) -> Topology:
    """What the store knows of where nodes hang."""
    links = schema.links
    cabled: dict[str, str] = {}
    switches: set[str] = set()
    for row in connection.execute(sa.select(links.c.switch, links.c.peer, links.c.peer_type)):
        switches.add(row.switch)
        if row.peer_type == "hca":
            cabled.setdefault(row.peer, row.switch)
    named = sa.select(schema.nodes.c.node, schema.nodes.c.leaf).where(schema.nodes.c.leaf.is_not(None))
    return Topology({**cabled, **{row.node: row.leaf for row in connection.execute(named)}}, frozenset(switches))

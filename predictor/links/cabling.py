"""Which link an event speaks of: the cables of the topology, and ports that no topology knows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa

from store.tables import schema
from store.tables.bulk_rows import is_one_of

# Ports of one node that no topology knows: it may name as many as it likes.
_MOST_OWN = 64


@dataclass(frozen=True, slots=True)
class Cable:
    """One link of the topology: `far` is the host or switch at its other end.

    `far_names`: what the far end's own events may call its port. `known_by`: the node that told of it, None: the
    fabric or an operator.
    """

    name: str
    switch: str
    far: str
    far_port: int | None
    far_is_host: bool
    far_names: tuple[str, ...] = ()
    known_by: str | None = None


class Cabling:
    """Which link an event speaks of. Ports that the topology does not tell apart become links of their own."""

    def __init__(self, cables: Iterable[Cable]) -> None:
        self.cables = tuple(cables)
        self._named = {cable.name: cable for cable in self.cables}
        self._by_port = {cable.name: cable.name for cable in self.cables}
        self._of_host: dict[str, list[str]] = {}
        for cable in self.cables:
            if cable.far_is_host:
                self._of_host.setdefault(cable.far, []).append(cable.name)
            elif cable.far_port is not None:
                self._by_port[f"{cable.far}/{cable.far_port}"] = cable.name
        named = Counter((cable.far, name) for cable in self.cables for name in cable.far_names)
        self._by_far_name = {
            (cable.far, name): cable.name
            for cable in self.cables
            for name in cable.far_names
            if named[cable.far, name] == 1
        }
        self._switches = {cable.switch for cable in self.cables}
        self._switches |= {cable.far for cable in self.cables if not cable.far_is_host}
        self._known: dict[tuple[str, str, str | None], str | None] = {}
        self.own: dict[str, str] = {}  # links beside the topology, and whose they are
        self._own_of: Counter[str] = Counter()

    def ends(self, link: str) -> tuple[str, ...]:
        """Both ends of a link, as an operator finds them; of a port beside the topology the near one alone."""
        cable = self._named.get(link)
        if cable is None:
            return (link,)
        far = cable.far if cable.far_port is None else f"{cable.far} port {cable.far_port}"
        return (f"{cable.switch} port {link.rpartition('/')[2]}", far)

    def tellers(self, link: str) -> tuple[str, ...]:
        """The host and the switches whose events may speak of a cable of the topology."""
        cable = self._named.get(link)
        return () if cable is None else (cable.switch, cable.far)

    @property
    def of_fabric(self) -> frozenset[str]:
        """The links that the fabric itself or an operator told of: no node can make one up."""
        return frozenset(cable.name for cable in self.cables if cable.known_by is None)

    def host(self, link: str) -> str | None:
        """The node at a link's end; None for a link between two switches."""
        cable = self._named.get(link)
        if cable is None:
            return self.own.get(link)
        return cable.far if cable.far_is_host else None

    def link(self, node: str, device: str, name: str | None) -> str | None:
        """The link of an event: of its node, its device as JSON, and the device's name. None: of no single one."""
        key = (node, device, name)
        if key not in self._known:
            self._known[key] = self._find(node, orjson.loads(device), name)
        return self._known[key]

    def _find(self, node: str, device: dict[str, Any], name: str | None) -> str | None:
        port = device.get("port") if device.get("port") is not None else device.get("index")
        if node in self._switches:
            return self._by_port.get(f"{node}/{port}")
        cables = self._of_host.get(node, ())
        if len(cables) == 1:
            return cables[0]
        for called in (device.get("uuid"), name):
            if (node, str(called).lower()) in self._by_far_name:
                return self._by_far_name[node, str(called).lower()]
        known = name or device.get("uuid") or device.get("pci") or port
        if known is None or device.get("type") not in ("port", "hca", "nic", "net", "interface"):
            return None
        found = f"{node}/{known}"
        if found not in self.own:
            if self._own_of[node] >= _MOST_OWN:
                return None
            self._own_of[node] += 1
            self.own[found] = node
        return found


def read_cabling(connection: sa.Connection) -> Cabling:
    """The topology as it is now; a cable between two switches is named once, by the end that comes first."""
    table = schema.links
    rows = connection.execute(sa.select(table).order_by(table.c.switch, table.c.port)).all()
    made_up = _hosts_called_switches(connection, rows)
    cables = {}
    for row in rows:
        back = f"{row.peer}/{row.peer_port}"
        if row.switch not in made_up and (row.peer_type == "hca" or back not in cables):
            name = f"{row.switch}/{row.port}"
            is_host = row.peer_type == "hca"
            is_named = is_host and row.known_by is None  # else a node could make up as many links as names
            ends = tuple(one.lower() for one in (row.peer_port_guid, row.hca) if one is not None and is_named)
            cables[name] = Cable(name, row.switch, row.peer, row.peer_port, is_host, ends, row.known_by)
    return Cabling(cables.values())


def _hosts_called_switches(connection: sa.Connection, rows: Sequence[Any]) -> set[str]:
    """Names that one node alone calls a switch, and that are a node's: whose losses would be taken for that node's."""
    tellers: dict[str, set[str | None]] = {}
    for row in rows:
        tellers.setdefault(row.switch, set()).add(row.known_by)
    lone = [switch for switch, told_by in tellers.items() if len(told_by) == 1 and None not in told_by]
    if not lone:
        return set()
    return set(
        connection.scalars(sa.select(schema.nodes.c.node).where(is_one_of(connection, schema.nodes.c.node, lone)))
    )

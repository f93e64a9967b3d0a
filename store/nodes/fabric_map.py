"""What the map of the fabric shows: each node's state, risk, temperature and link errors, and the cables that err.

read_map_nodes(connection, fleet)             # 12,500 rows of 12,500 nodes, by name
read_temperatures(connection, now)            # the hottest GPU of each node, of the last two hours
read_link_errors(connection, kinds, now)      # of nodes and of cables, of the last day
read_spines(connection)                       # the switches between the leaves
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.database.known_nodes import is_counted
from store.nodes.fleet import FleetQuery, node_states
from store.tables import schema
from store.tables.bulk_rows import is_one_of

FRESH_FOR = timedelta(hours=2)  # a roll-up is of an hour, and comes a while after it
ERRORS_OF = timedelta(hours=24)
# What a map can show and a reader take in: of a storm the places with most errors.
MOST_PLACES, MOST_LINKS, MOST_SPINES = 2_000, 500, 256


@dataclass(frozen=True, slots=True)
class BadLink:
    """A cable that erred: from a switch's port to its peer, with the errors of both its ends."""

    switch: str
    port: int
    peer: str
    is_host: bool
    errors: int
    kind: str


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """The errors of links by node, and the cables that they are of, those told by the fabric first."""

    nodes: Mapping[str, int]
    links: Sequence[BadLink]


def read_map_nodes(connection: sa.Connection, fleet: FleetQuery) -> Sequence[Any]:
    """`node rack leaf state score_24h` of every node that counts, by name; the score is None where it is withheld."""
    states = node_states(fleet).where(is_counted(schema.nodes.c.node)).subquery()
    names = ("node", "rack", "leaf", "state", "score_24h")
    return connection.execute(sa.select(*(states.c[name] for name in names)).order_by(states.c.node)).all()


def read_temperatures(connection: sa.Connection, now: datetime) -> dict[str, float]:
    """The hottest GPU of each node, in °C, of its newest hour since `FRESH_FOR` before now."""
    table = schema.telemetry.c
    query = sa.select(table.node, table.gpu_temp_max_c).where(
        table.time > now - FRESH_FOR, table.time <= now, table.gpu_temp_max_c.is_not(None)
    )
    # Of a node the newest comes last.
    return {node: heat for node, heat in connection.execute(query.order_by(table.time))}  # noqa: C416  # rows are no pairs


def read_spines(connection: sa.Connection) -> list[str]:
    """The switches that are cabled to switches and are no node's leaf, by name; at most `MOST_SPINES`."""
    links, leaves = schema.links.c, sa.select(schema.nodes.c.leaf).where(schema.nodes.c.leaf.is_not(None))
    between = links.peer_type == "switch"
    ends = sa.union(sa.select(links.switch.label("name")).where(between), sa.select(links.peer).where(between))
    names = ends.subquery().c.name
    return list(connection.scalars(sa.select(names).where(names.not_in(leaves)).order_by(names).limit(MOST_SPINES)))


def read_link_errors(connection: sa.Connection, kinds: Sequence[str], now: datetime) -> LinkErrors:
    """What incidents of these kinds of the last day say of links; an error of a switch's port is its host's too."""
    table = schema.incidents.c
    query = sa.select(table.node, table.device, table.name, table.kind, table["count"])
    query = query.where(
        table.end >= now - ERRORS_OF,
        table.start <= now,
        table.kind.in_(kinds),
        table.severity != "info",
        table.node.is_not(None),
    )
    found = connection.execute(query.order_by(table["count"].desc(), table.id).limit(MOST_PLACES)).all()
    cables = _Cables(connection, sorted({row.node for row in found}))
    nodes: dict[str, int] = defaultdict(int)
    errors: dict[tuple[str, int], int] = defaultdict(int)
    kind_of: dict[tuple[str, int], str] = {}
    for node, device, name, kind, count in found:
        link = cables.find(node, device, name)
        host = node if link is None or link.peer_type != "hca" else link.peer
        nodes[host] += count
        if link is not None:
            errors[link.switch, link.port] += count
            kind_of.setdefault((link.switch, link.port), kind)
    bad = sorted(errors, key=lambda key: (cables.at[key].known_by is not None, -errors[key], key))[:MOST_LINKS]
    links = [
        BadLink(*key, cables.at[key].peer, cables.at[key].peer_type == "hca", errors[key], kind_of[key]) for key in bad
    ]
    return LinkErrors(nodes, links)


class _Cables:
    """The cables at some hosts and switches, to be found by what an incident says of its device."""

    def __init__(self, connection: sa.Connection, places: Sequence[str]) -> None:
        links = schema.links.c
        columns = (links.switch, links.port, links.peer, links.peer_port, links.peer_type, links.hca, links.known_by)
        near = sa.or_(is_one_of(connection, links.switch, places), is_one_of(connection, links.peer, places))
        rows = connection.execute(sa.select(*columns).where(near)).all() if places else []
        self.at = {(row.switch, row.port): row for row in rows}
        self._far = {(row.peer, row.peer_port): row for row in rows if row.peer_type == "switch"}
        self._of_host: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            if row.peer_type == "hca":
                self._of_host[row.peer].append(row)

    def find(self, node: str, device: Mapping[str, Any], name: str | None) -> Any:
        """The cable of an incident; None where the topology does not tell one."""
        port = device.get("port") if device.get("port") is not None else device.get("index")
        own = self._of_host.get(node, [])
        if not own:
            key = (node, _number(port))
            return self.at.get(key) or self._far.get(key)
        if len(own) == 1:
            return own[0]
        called = {str(one).partition("/")[0] for one in (name, device.get("uuid"), port) if one is not None}
        return next((row for row in own if row.hca in called), None)


def _number(port: Any) -> int | None:
    text = str(port)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None

"""How well an incident explains a stop, with the reason in an operator's words. The weights are our choice.

A fatal fault of the machine explains a stop; an error of it may; a warning seldom; a program's own error is mostly the
consequence of another node's fault. The first fault after the last progress counts most (FIELD C: peers follow within
hundreds of milliseconds, the timeout within 10 to 30 minutes).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import sqlalchemy as sa

from diagnosis.causes.stop import Stoppage
from diagnosis.incidents.root import kind_key, plain
from store.records.event import Device
from store.records.incident import Incident
from store.tables import schema

# Where nodes hang: the leaf switch of each, from the node table, else from the cabling.


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
        if nodes is None or incident.node in nodes or any(node in nodes for node in incident.nodes):
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


_BASE = {"fatal": 0.9, "error": 0.6, "warning": 0.2, "info": 0.05}
_CAUSE = {
    "hardware": 1.0,
    "fabric": 1.0,
    "host": 0.95,
    "driver": 0.95,
    "storage": 0.8,
    "unknown": 0.6,
    "application": 0.4,
}
_LOST_LINK = ("link_down", "port_removed", "ib_port", "net_link", "bond_down", "node_down")
# A lost link stops a synchronous job as surely as a dead GPU, though the subnet manager calls it an error.
_LOST_LINK_BASE = 0.85
_BEFORE = 0.5  # it began before the last progress: it was survived at first
_LATER = 0.75  # for each fault of the machine that came clearly earlier
_CLEARLY = timedelta(seconds=1)
_FELT = 0.5  # of the doubt that is left, where its whole NVLink domain bears it out
_UNDER_SWITCH = 0.5  # the switch above explains it better
_ABOVE = 0.95
_TOGETHER = timedelta(seconds=10)
_SEVERAL = 3
_MACHINE = ("hardware", "fabric", "driver", "host", "storage")


@dataclass(frozen=True, slots=True)
class Plausibility:
    """How plausible, 0-1, and why."""

    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Incidents of several nodes of one leaf that lost their link within seconds."""

    leaf: str
    incidents: tuple[Incident, ...]

    def verdict(self, stop: Stoppage) -> Plausibility:
        """The switch above them as the suspect."""
        first = self.incidents[0]
        score = _ABOVE * (1.0 if first.start >= stop.last_work - _CLEARLY else _BEFORE)
        nodes = len({incident.node for incident in self.incidents})
        span = (self.incidents[-1].start - first.start).total_seconds()
        return Plausibility(
            score, f"{nodes} nodes of {self.leaf} lost their link within {span:.0f} s: the switch above them"
        )


def weigh(incident: Incident, stop: Stoppage, others: Sequence[Incident], under_leaf: str | None) -> Plausibility:
    """How well one incident explains a stop, beside the others of its window."""
    lost_link = incident.kind in (*_LOST_LINK, "gpu_missing")
    base = max(_BASE[incident.severity], _LOST_LINK_BASE if lost_link else 0.0)
    score = base * (1.0 if lost_link else _CAUSE[incident.cause])
    what = kind_key(incident.kind, incident.code).replace(":", " ")
    named = "" if incident.name is None else f" of {incident.name}"
    reasons = [f"{incident.severity} {incident.cause} fault {what}{named}"]
    lag = (incident.start - stop.last_work).total_seconds()
    if lag < -_CLEARLY.total_seconds():
        score *= _BEFORE
        reasons.append(f"began {-lag:.0f} s before the last progress")
    else:
        reasons.append(f"{max(0.0, lag):.0f} s after the last progress")
    is_felt = incident.node is not None and len(incident.nodes) > 1
    # What happened elsewhere does not explain what all nodes of a domain felt of this one at once.
    earlier = 0 if is_felt else _earlier(incident, others, stop)
    if is_felt:
        score += (1.0 - score) * _FELT
    score *= _LATER ** min(earlier, 4)
    if earlier:
        reasons.append(f"after {earlier} other fault{'s' if earlier > 1 else ''} of the machine")
    if under_leaf is not None:
        score *= _UNDER_SWITCH
        reasons.append(f"with others under {under_leaf}")
    if incident.link is not None:
        reasons.append(f"link {incident.link}")
    if incident.domain is not None and len(incident.nodes) > 1:
        reasons.append(f"felt by {len(incident.nodes)} nodes of NVLink domain {incident.domain}")
    if incident.count > 1:
        reasons.append(f"{incident.count} events")
    return Plausibility(round(score, 4), ", ".join(reasons))


def _earlier(incident: Incident, others: Sequence[Incident], stop: Stoppage) -> int:
    """Grave faults of the machine on other nodes that began clearly earlier, after the last progress."""
    return sum(
        other.cause in _MACHINE
        and other.severity in ("error", "fatal")
        and other.node != incident.node
        and stop.last_work - _CLEARLY <= other.start < incident.start - _CLEARLY
        for other in others
    )


def together(incidents: Sequence[Incident], topology: Topology) -> list[LeafGroup]:
    """Leaves under which several nodes lost their link within seconds."""
    by_leaf: dict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        leaf = topology.leaf.get(incident.node or "")
        if leaf is not None and any(plain(kind) in _LOST_LINK for kind in incident.kinds):
            by_leaf[leaf].append(incident)
    found = []
    for leaf, own in sorted(by_leaf.items()):
        start = 0
        for end in range(1, len(own) + 1):
            if end == len(own) or own[end].start - own[end - 1].start > _TOGETHER:
                part = own[start:end]
                if len({incident.node for incident in part}) >= _SEVERAL:
                    found.append(LeafGroup(leaf, tuple(part)))
                start = end
    return found

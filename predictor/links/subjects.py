"""What may fail: a node, or a link. The same features, labels and model serve both."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa

from predictor.hazard.prior import Prior, packaged
from predictor.history.arrays import (
    DAY_MS,
    EVENT_WINDOW_MS,
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    INCIDENT_GAP_MS,
    TELEMETRY_COLUMNS,
    Bools,
    FleetArrays,
    History,
    Ints,
    Jobs,
    OutageLog,
    Population,
    Precursors,
    Telemetry,
    from_ms,
    to_ms,
)
from predictor.history.families import BY_KIND, FAMILY_INDEX, LINK_LOSSES
from predictor.history.precursor_log import PrecursorLog, event_rows, milliseconds
from predictor.history.store_reader import data_span, read_history, read_population
from predictor.model.baselines import BASELINES, LINK_BASELINES, Baseline
from store.nodes.inventory import read_nodes
from store.tables import schema
from store.tables.bulk_rows import is_one_of

# Links as subjects: which cable or optic will flap or die, by the same features, labels and model as nodes.
#
#     history = link_history(connection, first, last)      # history.fleet.names: "leaf-03/12", "gpu-017/mlx5_3"
#     population = link_population(connection, end_ms)
#
# A link is a cable of the topology, named by its switch and port; or, where the topology cannot tell which one an event
# speaks of, a port of a node. What either end says is the link's. Its "outages" are its losses: flaps less than ten
# minutes apart are one. A loss while either end was out of service is nobody's fault: it counts as planned.

_FAMILIES = ("link_flap", "link_error", "pcie")
_KINDS = sorted(kind for kind, family in BY_KIND.items() if family in _FAMILIES)
# Losses that features know of: counting them must not take longer from year to year.
LOSS_WINDOW_MS = 365 * DAY_MS
# Losses closer than this are one; one lasts at least a minute, since few sources say when it was over.
LOSS_GAP_MS, LOSS_MS = 10 * 60_000, 60_000
# A node's outage is written down minutes after its link fell, and its link comes up a while before it is back.
_HINDSIGHT_MS = 15 * 60_000
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


@dataclass(frozen=True, slots=True)
class KnownLinks:
    """The links of the topology and the ports beside it, as a fleet; and when the data begin, None: there are none."""

    cabling: Cabling
    fleet: FleetArrays
    begun_ms: int | None


def link_history(
    connection: sa.Connection, first: datetime, last: datetime, known: KnownLinks | None = None
) -> History:
    """All that features of links between two moments need: nothing at or after `last`, no older loss than a year.

    Args:
        known: the links, if they are known already: looking for them reads a year's events.
    """
    first_ms, last_ms = to_ms(first), to_ms(last)
    known = known or known_links(connection)
    fleet, begun_ms = known.fleet, known.begun_ms
    signs = _precursors(connection, known, _KINDS, (first_ms - EVENT_WINDOW_MS - INCIDENT_GAP_MS, last_ms))
    flaps = _precursors(connection, known, LINK_LOSSES, (first_ms - LOSS_WINDOW_MS, last_ms))
    nothing = np.empty(0, dtype=np.int64)
    dark = Telemetry(nothing, nothing, np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32), nothing)
    return History(
        fleet=fleet,
        precursors=signs,
        outages=_lost(connection, known, flaps, last_ms),
        telemetry=dark,
        jobs=Jobs(nothing, nothing, nothing, nothing),
        start_ms=first_ms if begun_ms is None else min(begun_ms, first_ms),
    )


def link_population(connection: sa.Connection, end_ms: int, known: KnownLinks | None = None) -> Population:
    """Every link and every loss, the future included: for labels alone. `known` as for `link_history`."""
    known = known or known_links(connection)
    flaps = _precursors(connection, known, LINK_LOSSES, (FAR_PAST_MS, FAR_FUTURE_MS))
    return Population(known.fleet, _lost(connection, known, flaps, None), end_ms)


def known_links(connection: sa.Connection) -> KnownLinks:
    """The links as they are now.

    Ports beside the topology are those of the data's last year, so that positions are the same whenever one asks.
    """
    cabling, span = read_cabling(connection), data_span(connection)
    if span is not None:
        since = from_ms(to_ms(span[1]) - LOSS_WINDOW_MS)
        reported = (
            event_rows(connection).where(schema.events.c.kind.in_(_KINDS), schema.events.c.time >= since).subquery().c
        )
        told = (reported[0], reported[7], reported[8])
        # In order: of a node that names more ports than it may have, the same ones count each time.
        with connection.execute(sa.select(*told).distinct().order_by(*told)) as rows:
            for row in rows:
                cabling.link(*row)
    return KnownLinks(cabling, _fleet(connection, cabling), None if span is None else to_ms(span[0]))


def _precursors(
    connection: sa.Connection, known: KnownLinks, kinds: Sequence[str], window_ms: tuple[int, int]
) -> Precursors:
    """Events of links in [window_ms[0], window_ms[1]), the link in the place of the node."""
    cabling = known.cabling
    time = schema.events.c.time
    query = event_rows(connection).where(schema.events.c.kind.in_(kinds)).order_by(time, schema.events.c.id)
    if window_ms[0] > FAR_PAST_MS:
        query = query.where(time >= from_ms(window_ms[0]))
    if window_ms[1] < FAR_FUTURE_MS:
        query = query.where(time < from_ms(window_ms[1]))
    log = PrecursorLog()
    with connection.execute(query) as rows:
        reported = ((cabling.link(row[0], row[7], row[8]), *row[1:]) for row in rows)
        log.take(row for row in reported if row[0] is not None)
    return log.precursors(known.fleet, *window_ms)


def _lost(connection: sa.Connection, known: KnownLinks, flaps: Precursors, until_ms: int | None) -> OutageLog:
    """Flaps as outages of their links, those excused that are no fault of theirs (`until_ms` None: by hindsight)."""
    lost = flaps.family == FAMILY_INDEX["link_flap"]
    losses = _losses(flaps.node[lost], flaps.time_ms[lost], until_ms)
    return replace(losses, planned=_excused(connection, losses, _ends(known.fleet, known.cabling), until_ms is None))


def _fleet(connection: sa.Connection, cabling: Cabling) -> FleetArrays:
    """The links as a fleet: a link's leaf is its switch, its time in service that of its host."""
    nodes = {node.node: node for node in read_nodes(connection)}
    hosts = {cable.name: cable.far if cable.far_is_host else None for cable in cabling.cables} | cabling.own
    switches = {cable.name: cable.switch for cable in cabling.cables}
    names = tuple(sorted(hosts))
    leaves: dict[str, int] = {}
    leaf, since, until = [], [], []
    for name in names:
        host = nodes.get(hosts[name] or "")
        switch = switches.get(name) or (host.leaf if host else None)
        leaf.append(-1 if switch is None else leaves.setdefault(switch, len(leaves)))
        since.append(to_ms(host.in_service_since) if host and host.in_service_since else FAR_PAST_MS)
        until.append(to_ms(host.in_service_until) if host and host.in_service_until else FAR_FUTURE_MS)
    unknown = np.full(len(names), -1, dtype=np.int64)
    return FleetArrays(
        names=names,
        leaf=np.array(leaf, dtype=np.int64),
        rack=unknown,
        gpus=np.full(len(names), np.nan),
        since_ms=np.array(since, dtype=np.int64),
        until_ms=np.array(until, dtype=np.int64),
        model=unknown,
    )


def _ends(fleet: FleetArrays, cabling: Cabling) -> dict[str, list[int]]:
    """The links of each host."""
    found: dict[str, list[int]] = {}
    index = fleet.index
    pairs = [(cable.far, cable.name) for cable in cabling.cables if cable.far_is_host]
    for host, name in (*pairs, *((host, name) for name, host in cabling.own.items())):
        # A port that fell silent long ago is no link, though a label's reading meets it.
        if name in index:
            found.setdefault(host, []).append(index[name])
    return found


def _losses(link: Ints, time_ms: Ints, until_ms: int | None) -> OutageLog:
    """Flaps as losses: those of one link that follow each other closely are one. An end that is not over is unknown."""
    order = np.lexsort((time_ms, link))
    link, time_ms = link[order], time_ms[order]
    opens = np.ones(len(link), dtype=np.bool_)
    opens[1:] = (link[1:] != link[:-1]) | (time_ms[1:] - time_ms[:-1] > LOSS_GAP_MS)
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(link)) - 1 if len(first) else first
    end_ms = time_ms[last] + LOSS_MS if len(first) else time_ms[first]
    if until_ms is not None:
        end_ms = np.where(end_ms >= until_ms, FAR_FUTURE_MS, end_ms)
    by_start = np.argsort(time_ms[first], kind="stable")
    none = np.zeros(len(first), dtype=np.bool_)
    return OutageLog(link[first][by_start], time_ms[first][by_start], end_ms[by_start], none, none)


def _excused(connection: sa.Connection, losses: OutageLog, ends: dict[str, list[int]], hindsight: bool) -> Bools:
    """Losses while the host was out of service for another reason than the fabric.

    Features know only of outages that had begun by then; labels, of those that were written down a little later too.
    """
    table = schema.outages
    late_ms = _HINDSIGHT_MS if hindsight else 0
    excused = np.zeros(len(losses.node), dtype=np.bool_)
    query = sa.select(table.c.node, milliseconds(connection, table.c.start), milliseconds(connection, table.c.end))
    query = query.where(sa.or_(table.c.planned.is_(True), table.c.cause != "fabric"))
    by_link: dict[int, list[int]] = {}
    for at, link in enumerate(losses.node.tolist()):
        by_link.setdefault(link, []).append(at)
    for node, start_ms, end_ms in connection.execute(query):
        over_ms = FAR_FUTURE_MS if end_ms is None else end_ms + late_ms
        for link in ends.get(node, ()):
            for at in by_link.get(link, ()):
                excused[at] |= start_ms - late_ms <= losses.start_ms[at] <= over_ms
    return excused


@dataclass(frozen=True, slots=True)
class Subjects:
    """How one kind of subject is read, what a model of it must beat, and what other clusters taught of it."""

    noun: str
    population: Callable[[sa.Connection, int], Population]
    history: Callable[[sa.Connection, datetime, datetime], History]
    baselines: Mapping[str, Baseline]
    prior: Callable[[], Prior | None]


NODES = Subjects("node", read_population, read_history, BASELINES, packaged)
LINKS = Subjects("link", link_population, link_history, LINK_BASELINES, lambda: None)

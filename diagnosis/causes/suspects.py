"""Who may have caused an effect: its place, what that hangs on, the far end of its cable, and whom its lines name."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from diagnosis.causes.cause_catalog import CauseRow, CauseTables, cause_tables
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place, adapter_model
from diagnosis.symptoms.gpu_names import is_by_pci
from store.records.verdict import RELEASE_CLASSES, CauseClass

if TYPE_CHECKING:
    from diagnosis.causes.effects import Effect

# The classes that a place of a kind may be the cause as.
_OWN: dict[str, tuple[CauseClass, ...]] = {
    "gpu": ("gpu", "nvlink"),
    "nvlink": ("nvlink",),
    "nvswitch": ("nvswitch",),
    "nic": ("nic", "cable", "optic"),
    "port": ("port", "cable", "optic"),
    "cable": ("cable",),
    "optic": ("optic",),
    "switch": ("switch",),
    "node": ("node",),
    "storage": ("storage",),
    "power": ("power",),
    "cooling": ("cooling",),
    "rack": ("rack", "power", "cooling"),
}
_ABOVE: dict[str, tuple[CauseClass, ...]] = {
    "switch": ("switch",),
    "nvswitch": ("nvswitch",),
    "rack": ("rack", "power", "cooling"),
    "power": ("power",),
    "cooling": ("cooling",),
    "node": ("node",),
}
# What is over within a minute happens this much more often than what stays (logarithm).
_FLEETING = math.log(10.0)
_LINKS_OF_NODE, _GPUS_OF_NODE = 8, 8
# An adapter that is not its node's first: a leaf that is told of the node as a whole may be another rail's.
_FURTHER_RAIL = re.compile(r"/mlx5_(?:bond_)?[1-9]\d*$", re.ASCII)
# Where others' complaint of a node is: no part below it that fails beside its own, but the node as a whole.
CUT_OFF = "cut_off"
# Classes of which a node's own lines may tell.
_SHOWN_BY_NODES = frozenset({"gpu", "nvlink", "nvswitch", "nic", "storage"})
# Parts whose fault ends the programs of their node, and within how long a peer that cannot reach it is heard, before or
# after: the driver tells of a fault later than a queue pair that gives up, or a time-out of minutes ends after it.
_ENDS_PROGRAMS = frozenset({"gpu", "nvlink", "nvswitch"})
_CUT_OFF_WITHIN = timedelta(minutes=10)
# Complaints that may be the complainer's own fault: of many clients one alone that loses its server lost its own way.
_OF_BOTH_SIDES = frozenset({"storage_complaint"})
# Classes that are the parts of a cable's both ends.
_OF_CABLES = ("cable",)
# What a switch alone tells of one of its links, all others being well: seldom is it the switch itself.
_OF_ONE_LINK: tuple[CauseClass, ...] = ("cable", "switch")


class Suspect(NamedTuple):
    """A class of cause at a place."""

    kind: CauseClass
    place: Place


class Hit(NamedTuple):
    """One effect that a suspect would show: where, and of which of the suspect's parts (`unit`)."""

    effect: Effect
    where: str
    row: CauseRow
    unit: Place


Hits = tuple[Suspect, Sequence[Hit]]


@dataclass(slots=True)
class ReachIndex:
    """What depends on what, remembered: many effects have the same places above them."""

    graph: DeviceGraph
    tables: CauseTables = field(default_factory=cause_tables)
    _above: dict[Place, tuple[Place, ...]] = field(default_factory=dict)
    _node: dict[Place, str | None] = field(default_factory=dict)
    _units: dict[Suspect, frozenset[Place]] = field(default_factory=dict)
    _base: dict[int, float] = field(default_factory=dict)
    _nodes: int | None = None
    _peers: dict[CauseClass, dict[str | None, set[Place]]] = field(default_factory=dict)
    _elsewhere: dict[tuple[Suspect, str], int] = field(default_factory=dict)
    # Which nodes show each sign.
    signs: dict[str, set[str]] = field(default_factory=dict)

    def anew(self) -> ReachIndex:
        """What depends on what, kept; nothing of the scene that was looked at before."""
        self._base.clear()
        self._elsewhere.clear()
        self.signs.clear()
        return self

    def warm(self) -> ReachIndex:
        """Find out now what grows with the cluster, so that no search has to: which nodes each release has."""
        for kind in RELEASE_CLASSES:
            self._by_model(kind)
        self.known_nodes()
        return self

    def is_first_rail(self, places: set[Place]) -> bool:
        """Whether these are no more than the first adapter of a node, so that it may have no other."""
        return len(places) == 1 and not any(_FURTHER_RAIL.search(place.name) for place in places)

    def known_nodes(self) -> int:
        """How many nodes the graph knows."""
        if self._nodes is None:
            self._nodes = len(self.graph.places("node"))
        return self._nodes

    def rest_of(self, release: Suspect) -> int:
        """How many nodes have other versions alone: of an adapter's firmware, of the same model."""
        return len(self._by_model(release.kind)[_model_of(release.place)]) - len(self.units(release))

    def others_among(self, release: Suspect, nodes: Iterable[Place]) -> int:
        """How many of some nodes these are."""
        own, peers = self.units(release), self._by_model(release.kind)[_model_of(release.place)]
        return sum(node in peers and node not in own for node in nodes)

    def _by_model(self, kind: CauseClass) -> dict[str | None, set[Place]]:
        """The nodes that have any version, by the model that it is of."""
        if kind not in self._peers:
            found: dict[str | None, set[Place]] = defaultdict(set)
            for place in self.graph.places(kind):
                found[_model_of(place)] |= self.units(Suspect(kind, place))
            self._peers[kind] = found
        return self._peers[kind]

    def struck_elsewhere(self, suspect: Suspect, sign: str) -> int:
        """How many nodes of other versions show the same: asked once all signs are known."""
        if (suspect, sign) not in self._elsewhere:
            shown = (Place("node", node) for node in self.signs.get(sign, ()))
            self._elsewhere[suspect, sign] = self.others_among(suspect, shown)
        return self._elsewhere[suspect, sign]

    def node_of(self, place: Place) -> str | None:
        """The node of a part: by the graph, else by its name."""
        if place not in self._node:
            found = self.graph.node_of(place)
            if found is None and place.kind in ("gpu", "nic", "nvswitch", "nvlink") and "/" in place.name:
                found = place.name.partition("/")[0]
            self._node[place] = found
        return self._node[place]

    def above(self, place: Place) -> tuple[Place, ...]:
        """All that a place depends on: by the graph; what it does not know, as its node does."""
        if place not in self._above:
            found = dict.fromkeys(self.graph.above(place))
            node = self.node_of(place)
            if node is not None and Place("node", node) != place:
                found[Place("node", node)] = None
                if not self.graph.knows(place):
                    found.update(dict.fromkeys(self.graph.above(Place("node", node))))
                    switches = sum(parent.kind == "switch" for parent in self.graph.parents(Place("node", node)))
                    if switches > 1 or (place.kind == "nic" and _FURTHER_RAIL.search(place.name)):
                        # A node of several rails: nobody knows which switch this one hangs on.
                        found = {parent: None for parent in found if parent.kind != "switch"}
            far = self.graph.far_end(place)
            if far is not None:
                # Its own cable leads to one switch; the other rails of its node are no matter of this one.
                found = {parent: None for parent in found if parent.kind != "switch"}
                found[far] = None
                found.update(dict.fromkeys(self.graph.above(far)))
            self._above[place] = tuple(found)
        return self._above[place]

    def base_of(self, effect: Effect) -> float:
        """How much better an effect is explained by a cause of its own place than by none: logarithm of odds."""
        known = self._base.get(id(effect))
        if known is None:
            known = self._base[id(effect)] = _base(effect, self)
        return known

    def cable_of(self, place: Place) -> Place:
        """The cable at a port or adapter: both its ends in order; the one end where nobody knows the other."""
        if place.kind == "cable":
            return place
        far = self.graph.far_end(place)
        return Place("cable", place.name if far is None else "--".join(sorted((place.name, far.name))))

    def units(self, suspect: Suspect) -> frozenset[Place]:
        """The parts below a suspect that would all show it."""
        if suspect not in self._units:
            self._units[suspect] = frozenset(self._parts(suspect))
        return self._units[suspect]

    def _parts(self, suspect: Suspect) -> Iterable[Place]:
        kind, place = suspect
        if kind == "switch":
            ports = [child for child in self.graph.children(place) if child.kind in ("port", "nic")]
            if ports:
                return {self.cable_of(port) for port in ports if self.graph.far_end(port) or port.kind == "nic"}
        if kind == "nvswitch":
            gpus = self.graph.below(place, "gpu")
            if gpus:
                return gpus
        if kind == "node":
            return self.graph.children(place, "nic")
        return [Place("node", node) for node in self.graph.nodes_below(place)]

    def unit_of(self, suspect: Suspect, effect: Effect) -> Place:
        """Which part of a suspect an effect is of."""
        place = effect.place
        if suspect.kind == "switch" and place.kind in ("port", "nic", "cable"):
            return self.cable_of(place)
        if suspect.kind == "nvswitch" and place.kind == "gpu":
            return place
        if suspect.kind == "node":
            return place
        node = effect.node or self.node_of(place)
        if node is None:
            far = self.graph.far_end(place)
            node = None if far is None else self.node_of(far)
        return place if node is None else Place("node", node)


def _model_of(release: Place) -> str | None:
    """Of which model of adapters a release is; None of any other release."""
    return adapter_model(release.name) if release.kind == "firmware" else None


def _base(effect: Effect, reach: ReachIndex) -> float:
    tables = reach.tables
    chance = 0.0
    if effect.run is not None:
        row = tables.for_job("application", effect.kind)
        chance += 0.0 if row is None else tables.prior["application"] * row.chance
    if effect.place.kind != "job":
        if effect.place.kind == "node" and effect.kind == "link_down":
            chance += _LINKS_OF_NODE * tables.prior["cable"]  # nobody says which of them
        chance += sum(tables.prior[suspect.kind] * hit.row.chance for suspect, hit in _own(effect, effect.place, reach))
    return math.log1p(chance / effect.leak) + (_FLEETING if effect.is_fleeting() else 0.0)


def hits_of(effect: Effect, reach: ReachIndex) -> Iterator[tuple[Suspect, Hit]]:
    """Every suspect of an effect, each once for each way in which it would show it."""
    place = effect.place
    if place.kind != "job":
        if effect.named is None or effect.kind in _OF_BOTH_SIDES:
            yield from _own(effect, place, reach)
        yield from _above(effect, place, reach)
    if effect.named is not None:
        yield from _named(effect, effect.named, reach)


def _own(effect: Effect, place: Place, reach: ReachIndex) -> Iterator[tuple[Suspect, Hit]]:
    rows = reach.tables
    is_one_link = place.kind == "switch" and effect.kind == "link_down"
    for kind in _OF_ONE_LINK if is_one_link else _OWN.get(place.kind, ()):
        row = rows.row(kind, effect.kind, "own")
        if row is not None:
            at = reach.cable_of(place) if kind in _OF_CABLES else place
            yield Suspect(kind, at), Hit(effect, "own", row, at)
    far = reach.graph.far_end(place)
    if far is None:
        return
    for kind in _OWN.get(far.kind, ()):
        if kind in _OF_CABLES or kind == "optic":
            continue
        row = rows.row(kind, effect.kind, "far") or rows.row(kind, effect.kind, "own")
        if row is not None:
            yield Suspect(kind, far), Hit(effect, "far", row, far)


def _above(effect: Effect, place: Place, reach: ReachIndex) -> Iterator[tuple[Suspect, Hit]]:
    for parent in reach.above(place):
        for kind in _ABOVE.get(parent.kind, ()):
            row = reach.tables.row(kind, effect.kind, "below")
            if row is not None:
                suspect = Suspect(kind, parent)
                yield suspect, Hit(effect, "below", row, reach.unit_of(suspect, effect))
        if parent.kind in RELEASE_CLASSES:
            row = reach.tables.row(parent.kind, effect.kind, "rate")
            if row is not None:
                suspect = Suspect(parent.kind, parent)
                yield suspect, Hit(effect, "rate", row, reach.unit_of(suspect, effect))


def hits_at_nodes(effects: Iterable[Effect], reach: ReachIndex, known: Iterable[Hits]) -> Iterator[tuple[Suspect, Hit]]:
    """What a node itself shows, as signs of the parts and servers that its other signs make suspects."""
    suspects: dict[str, dict[Suspect, None]] = {}
    known = list(known)
    for suspect, hits in known:
        if suspect.kind in _SHOWN_BY_NODES:
            for hit in hits:
                node = hit.effect.node or reach.node_of(hit.unit)
                if node is not None:
                    suspects.setdefault(node, {})[suspect] = None
    known_of = dict(known)
    for effect in effects:
        if effect.named is not None and effect.named.kind == "node":
            yield from _of_cut_off(effect, effect.named, suspects.get(effect.named.name, ()), known_of, reach)
        if effect.place.kind in ("gpu", "nic"):
            yield from _of_parts(effect, suspects.get(reach.node_of(effect.place) or "", ()), known_of, reach)
        if effect.place.kind == "node":
            for suspect in suspects.get(effect.place.name, ()):
                row = reach.tables.row(suspect.kind, effect.kind, "node")
                if row is not None:
                    yield suspect, Hit(effect, "node", row, effect.place)


def _of_cut_off(
    effect: Effect, node: Place, suspects: Iterable[Suspect], known: Mapping[Suspect, Sequence[Hit]], reach: ReachIndex
) -> Iterator[tuple[Suspect, Hit]]:
    """A complaint that a node cannot be reached, as a sign of its GPUs that show a fault of their own about then."""
    for suspect in suspects:
        row = reach.tables.row(suspect.kind, effect.kind, "named") if suspect.kind in _ENDS_PROGRAMS else None
        if row is not None and any(_is_about(hit.effect, effect) for hit in known[suspect] if hit.where == "own"):
            yield suspect, Hit(effect, CUT_OFF, row, node)


def _of_parts(
    effect: Effect, suspects: Iterable[Suspect], known: Mapping[Suspect, Sequence[Hit]], reach: ReachIndex
) -> Iterator[tuple[Suspect, Hit]]:
    """What a GPU or an adapter shows, as a sign of other parts of its node."""
    if effect.place.kind == "gpu":
        yield from _of_own_switches(effect, suspects, reach)
    if is_by_pci(effect.place):
        return
    if effect.place.kind == "gpu":
        yield from _of_some_gpu(effect, suspects, reach)
    else:
        yield from _of_some_adapter(effect, suspects, known, reach)


def _of_some_adapter(
    effect: Effect, suspects: Iterable[Suspect], known: Mapping[Suspect, Sequence[Hit]], reach: ReachIndex
) -> Iterator[tuple[Suspect, Hit]]:
    """An adapter that the fabric calls by its name may be the one of its node that the kernel tells a fault of then."""
    row = reach.tables.row("nic", effect.kind, "own")
    if row is None or any(is_by_pci(Place("nic", name)) for name in reach.graph.names_of(effect.place)):
        return
    for suspect in suspects:
        if suspect.kind != "nic" or not is_by_pci(suspect.place):
            continue
        own = (hit.effect for hit in known.get(suspect, ()) if hit.where == "own")
        if any(not sign.is_mild() and _is_about(sign, effect) for sign in own):
            yield suspect, Hit(effect, "node", CauseRow(row.chance / _LINKS_OF_NODE), effect.place)


def _of_own_switches(effect: Effect, suspects: Iterable[Suspect], reach: ReachIndex) -> Iterator[tuple[Suspect, Hit]]:
    """What a GPU shows, as a sign of an NVSwitch on its own node's baseboard: every GPU there hangs on each of them."""
    for suspect in suspects:
        row = reach.tables.row("nvswitch", effect.kind, "below") if suspect.kind == "nvswitch" else None
        if row is not None and not reach.graph.knows(suspect.place):
            yield suspect, Hit(effect, "below", row, effect.place)


def _is_about(sign: Effect, complaint: Effect) -> bool:
    return complaint.first - _CUT_OFF_WITHIN <= sign.first <= complaint.last + _CUT_OFF_WITHIN


def _of_some_gpu(effect: Effect, suspects: Iterable[Suspect], reach: ReachIndex) -> Iterator[tuple[Suspect, Hit]]:
    """A GPU of which only the index is known may be any of its node whose index nobody told."""
    if len(reach.graph.names_of(effect.place)) > 1:
        return
    for suspect in suspects:
        if not is_by_pci(suspect.place) or suspect.kind not in _OWN["gpu"]:
            continue
        row = reach.tables.row(suspect.kind, effect.kind, "own")
        if row is not None:
            yield suspect, Hit(effect, "node", CauseRow(row.chance / _GPUS_OF_NODE), effect.place)


def _named(effect: Effect, named: Place, reach: ReachIndex) -> Iterator[tuple[Suspect, Hit]]:
    above = (parent for parent in reach.above(named) if parent.kind in ("node", "switch"))
    for place in (named, *above):
        for kind in _OWN.get(place.kind, ()):
            row = reach.tables.row(kind, effect.kind, "named")
            if row is not None:
                suspect = Suspect(kind, place)
                unit = effect.place if kind == "storage" else reach.unit_of(suspect, effect)
                yield suspect, Hit(effect, CUT_OFF if kind == "node" else "named", row, unit)

"""Which symptoms may have to do with each other: so that news is weighed with what lies around it.

    near = Neighbourhood(graph)
    fresh = near.update(symptoms)        # what is new or has materially changed since the last call
    part = near.around(fresh)            # with all that shares a node, a switch, a rack, a server or a job with it

A storm of fifty thousand faults at a thousand places costs as much for each as a single one does.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress
from operator import not_

from diagnosis.causes.effects import OF_JOBS
from diagnosis.causes.scene import SceneJob
from diagnosis.causes.suspects import ReachIndex, Suspect
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.symptom import Symptom, SymptomKind, in_order
from store.records.verdict import RELEASE_CLASSES

# Symptoms that are weighed together: the nearest.
MOST_AROUND = 1_500
# What all nodes or a third of them share is looked at in the wide, now and then.
_WIDE = frozenset(RELEASE_CLASSES)
# A release is told by so many nodes, and where they fail so much more often than the others.
_FEWEST, _MORE_OFTEN = 4, 2.0
# What a job as a whole shows; what the nodes show that it runs on.
_RUN, _ON_ITS_NODES = "run", "nodes of run"
_OF_RUN = (_RUN, _ON_ITS_NODES)
SymptomName = tuple[SymptomKind, Place, str | None, str | None]
Group = tuple[str, str]


class Neighbourhood:
    """The symptoms as last seen, by what they share."""

    def __init__(self, graph: DeviceGraph) -> None:
        self._graph = graph
        self._known: dict[SymptomName, Symptom] = {}
        self._seen: dict[int, Symptom] = {}
        self._groups: dict[Group, dict[SymptomName, None]] = defaultdict(dict)
        self._of: dict[SymptomName, tuple[Group, ...]] = {}
        self._by_event: dict[str, SymptomName] = {}
        self._runs: dict[str, tuple[str, ...]] = {}

    def place_jobs(self, jobs: Iterable[SceneJob]) -> None:
        """Say which jobs run where."""
        found: dict[str, set[str]] = defaultdict(set)
        for job in jobs:
            for node in job.nodes:
                found[node].add(job.run)
        self._runs = {node: tuple(sorted(runs)) for node, runs in found.items()}

    def update(self, symptoms: Sequence[Symptom]) -> list[SymptomName]:
        """Take the symptoms of now; returns those that are new or otherwise than before."""
        fresh: list[SymptomName] = []
        # Most are the same objects as before: these are passed over without a step of Python each.
        new = list(compress(symptoms, map(not_, map(self._seen.__contains__, map(id, symptoms)))))
        gone: list[Symptom] = []
        if len(self._seen) + len(new) != len(symptoms):
            now = set(map(id, symptoms))
            gone = _settled(symptom for key, symptom in self._seen.items() if key not in now)
        for symptom in _settled(new):
            name = _name_of(symptom)
            before = self._known.get(name)
            self._known[name] = symptom
            if before is None:
                self._add(name, symptom)
            if before is None or _changed(before, symptom):
                fresh.append(name)
            for event in symptom.events:
                self._by_event[event] = name
        for symptom in gone:
            name = _name_of(symptom)
            if self._known.get(name) is symptom:
                fresh += self._remove(name)
                del self._known[name]
            del self._seen[id(symptom)]
        self._seen.update((id(symptom), symptom) for symptom in new)
        return fresh

    def around(self, fresh: Iterable[SymptomName]) -> list[Symptom]:
        """These, what shares something with them, and all that the nodes of those show; in the order of time."""
        near: dict[SymptomName, None] = dict.fromkeys(name for name in fresh if name in self._known)
        for name in list(near):
            for group in self._of[name]:
                if len(near) >= MOST_AROUND:
                    break
                if group[0] != _ON_ITS_NODES:
                    near.update(self._groups[group])
                if group[0] in _OF_RUN:  # what a job says concerns its nodes; what a node says, the job, no other node
                    other = _ON_ITS_NODES if group[0] == _RUN else _RUN
                    near.update(self._groups.get((other, group[1]), {}))
        for name in list(near):
            if len(near) >= MOST_AROUND:
                break
            if name[3] is not None:
                near.update(self._groups.get(("node", name[3]), {}))
        found = [self._known[name] for name in list(near)[:MOST_AROUND] if name in self._known]
        return in_order(found)

    def of_event(self, event: str) -> Symptom | None:
        """The symptom that an event is one of."""
        name = self._by_event.get(event)
        return None if name is None else self._known.get(name)

    def _add(self, name: SymptomName, symptom: Symptom) -> None:
        groups = tuple(dict.fromkeys(self._groups_of(symptom)))
        self._of[name] = groups
        for group in groups:
            self._groups[group][name] = None

    def _remove(self, name: SymptomName) -> list[SymptomName]:
        """Forget a symptom; returns the others of its place, which stand alone now."""
        others: dict[SymptomName, None] = {}
        for group in self._of.pop(name, ()):
            members = self._groups[group]
            members.pop(name, None)
            if not members:
                del self._groups[group]
            elif group[0] == "node":
                others.update(members)
        for event in self._known[name].events:
            if self._by_event.get(event) == name:
                del self._by_event[event]
        return list(others)

    def _groups_of(self, symptom: Symptom) -> Iterator[Group]:
        place, node = symptom.place, symptom.node
        here = [place] + ([Place("node", node)] if node is not None and place.kind != "node" else [])
        far = self._graph.far_end(place)
        for one in [*here, *([far] if far is not None else [])]:
            yield one
            yield from (parent for parent in self._graph.parents(one) if parent.kind not in _WIDE)
        yield from (("name", name) for name in symptom.points_at)
        for run in {*([symptom.run] if symptom.run else []), *self._runs.get(node or "", ())}:
            yield (_RUN if symptom.kind in OF_JOBS else _ON_ITS_NODES, run)


def of_releases(symptoms: Iterable[Symptom], reach: ReachIndex) -> list[Symptom]:
    """The symptoms by which a release may be told, whatever their number: one a node of each sign that stands out.

    A sign stands out where the nodes of one version show it twice as often as all others. Of more than MOST_AROUND
    symptoms every second, third ... is taken, so that the shares of the versions stay as they are.
    """
    by_sign: dict[tuple[str, int | None, bool], dict[str, Symptom]] = defaultdict(dict)
    for symptom in symptoms:
        node = symptom.node or reach.node_of(symptom.place)
        if node is not None and any(reach.tables.row(kind, symptom.kind, "rate") for kind in RELEASE_CLASSES):
            sign = symptom.kind, symptom.code, symptom.severity in ("warning", "info")
            by_sign[sign].setdefault(node, symptom)
    found = [one for of in by_sign.values() if _stands_out(of, reach) for _, one in sorted(of.items())]
    every = -(-len(found) // MOST_AROUND) or 1
    return in_order(found[::every])


def _stands_out(nodes: Collection[str], reach: ReachIndex) -> bool:
    """Whether nodes are of one version twice as often as they would be by chance."""
    if len(nodes) < _FEWEST:
        return False
    struck: Counter[Suspect] = Counter()
    places = {Place("node", node) for node in nodes}
    for place in places:
        for parent in reach.graph.parents(place):
            struck.update(Suspect(kind, parent) for kind in RELEASE_CLASSES if kind == parent.kind)
    for suspect, count in struck.items():
        share, rest = count / max(1, len(reach.units(suspect))), reach.rest_of(suspect)
        if count >= _FEWEST and rest and share >= _MORE_OFTEN * reach.others_among(suspect, places) / rest:
            return True
    return False


def _settled(symptoms: Iterable[Symptom]) -> list[Symptom]:
    """In the order of time, and those of one moment and place always in the same one."""
    return in_order(sorted(symptoms, key=lambda one: (one.run or "", one.node or "")))


def _name_of(symptom: Symptom) -> SymptomName:
    return symptom.kind, symptom.place, symptom.run, symptom.node


def _changed(before: Symptom, now: Symptom) -> bool:
    """Whether a search would see another one: a further line of the same is none."""
    return (before.first, before.cured, before.severity, before.code, before.points_at) != (
        now.first,
        now.cured,
        now.severity,
        now.code,
        now.points_at,
    )

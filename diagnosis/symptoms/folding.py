"""Events to symptoms: what means the same at the same place is one, with its begin, its count, and whether it is over.

    fold = SymptomFold(graph)
    fold.take(events)                # in any order, each once
    fold.symptoms(now)               # the first first

The same events in any order give the same symptoms. What memory holds is bounded: the oldest cured ones go first.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.hangs.placement import RankPlacements
from diagnosis.hangs.stuck_ranks import StuckRanks
from diagnosis.symptoms.clocks import USUAL_UNCERTAINTY_S, NodeClocks
from diagnosis.symptoms.event_place import SUBNET, EventPlaces, names_of_others
from diagnosis.symptoms.gpu_names import GPU_TYPES, NodeGpus, is_by_pci
from diagnosis.symptoms.meaning import EventMeaning, lines_of, meaning_of, shown_since
from diagnosis.symptoms.switch_notices import SwitchNotices, at_place, link_place
from diagnosis.symptoms.symptom import SYMPTOM_KINDS, Symptom, SymptomKind, in_order
from store.records.event import SEVERITIES, Device, Event, Severity
from store.records.fault_catalog import code_description
from wire.words.values import coded

# Event ids and names of others that a symptom keeps.
_MOST_EVENTS = 5
_MOST_NAMES = 16
# Symptoms that are held; beyond, the oldest are forgotten.
MOST_SYMPTOMS = 200_000
# Moments of each symptom and of its cures that are held, the newest.
_MOST_MOMENTS = 32
# What a program brings about: one symptom may be of several jobs, one after the other.
_OF_PROGRAMS = frozenset({"gpu_program", "memory_limit"})
# Whose codes are no Xids of NVIDIA's: what they ask for is in the event.
_OWN_CODES = frozenset({"ascend_fault", "gpu_afid", "mlu_xid"})
# What a program reports of one rank's GPU.
_OF_RANKS = ("corruption", "gpu_fault", "gpu_lost")
_BADNESS = {severity: place for place, severity in enumerate(SEVERITIES)}

SymptomKey = tuple[SymptomKind, Place, str | None]


@dataclass(slots=True)
class _Tally:
    """One symptom in the making; `events` are of its first moments, in order."""

    node: str | None
    run: str | None
    first: datetime
    last: datetime
    severity: Severity
    newest: datetime | None = None  # of what is as grave as it ever was: a warning is no new sign of an error
    head: tuple[int, datetime, str, Event] | None = None  # the first of the worst
    count: int = 0
    doubt_s: float = USUAL_UNCERTAINTY_S
    events: list[tuple[datetime, str, Event]] = field(default_factory=list)
    moments: list[datetime] = field(default_factory=list)  # the newest, in order
    points_at: dict[str, None] = field(default_factory=dict)

    def add(self, event: Event, time: datetime) -> None:
        self.count += lines_of(event)
        if time > self.last:
            self.last = time
        elif time < self.first:
            self.first = time
        self._note(event, time)
        if event.severity != self.severity and _BADNESS[event.severity] > _BADNESS[self.severity]:
            self.severity = event.severity
        keep_newest(self.moments, time)
        entry = (time, event.id or "", event)
        if len(self.events) < _MOST_EVENTS or entry[:2] < self.events[-1][:2]:
            self.events.append(entry)
            self.events.sort(key=lambda one: one[:2])
            del self.events[_MOST_EVENTS:]
        for name in names_of_others(event):
            if len(self.points_at) < _MOST_NAMES:
                self.points_at[name] = None

    def _note(self, event: Event, time: datetime) -> None:
        """Whether it is the worst, and whether something new has happened."""
        happened = min(time, shown_since(event) or time)
        was, now = self.head is not None and _is_grave(self.severity), _is_grave(event.severity)
        if self.newest is None or now > was:
            self.newest = happened
        elif now == was:
            self.newest = max(happened, self.newest)
        head = (-_BADNESS[event.severity], time, event.id or "", event)
        if self.head is None or head[:3] < self.head[:3]:
            self.head = head

    def merge(self, other: "_Tally") -> None:
        """Take in what was told of the same under another name."""
        self.count += other.count
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        was, now = _is_grave(self.severity), _is_grave(other.severity)
        newest = [one.newest for one, is_meant in ((self, was >= now), (other, now >= was)) if is_meant and one.newest]
        self.newest = max(newest, default=None)
        self.head = min(filter(None, (self.head, other.head)), key=lambda one: one[:3], default=None)
        self.severity = max(self.severity, other.severity, key=_BADNESS.__getitem__)
        self.doubt_s = max(self.doubt_s, other.doubt_s)
        self.moments = sorted((*self.moments, *other.moments))[-_MOST_MOMENTS:]
        self.events = sorted((*self.events, *other.events), key=lambda one: one[:2])[:_MOST_EVENTS]
        for name in list(other.points_at)[: _MOST_NAMES - len(self.points_at)]:
            self.points_at[name] = None


def _is_grave(severity: Severity) -> bool:
    return severity in ("error", "fatal")


class SymptomFold:
    """Symptoms in the making. `graph` may be replaced by a newer one; what was folded keeps its place.

    What ranks report of their collectives is kept, too: the ranks that others wait for are found when they are read.
    Times are by the `clocks` as they are known when an event is taken.
    """

    def __init__(self, graph: DeviceGraph) -> None:
        self.graph = graph
        self.clocks = NodeClocks()
        self._tallies: dict[SymptomKey, _Tally] = {}
        self._made: dict[SymptomKey, Symptom] = {}  # of the tallies, but for those in `_stale`
        self._stale: set[SymptomKey] = set()
        self._at: dict[tuple[SymptomKind, Place], set[SymptomKey]] = {}  # whose cures these are
        self._cures: dict[tuple[SymptomKind, Place], list[datetime]] = {}
        self._places = EventPlaces(graph)
        self._notices = SwitchNotices(graph)
        self._ranks = StuckRanks()
        self._gpus = NodeGpus()
        self._by_index: dict[Place, set[SymptomKey]] = {}  # of GPUs whose PCI address nobody told

    def place_ranks(self, placements: RankPlacements) -> None:
        """Say on which nodes the ranks of runs are."""
        self._ranks.placements = placements

    def __len__(self) -> int:
        return len(self._tallies)

    def take(self, events: Iterable[Event]) -> int:
        """Fold events, each once; returns how many meant anything. Those without a time mean nothing."""
        taken = 0
        for event in events:
            if event.time is not None:
                told = self._ranks.take(event)
                time, doubt_s = self.clocks.common(event, event.time)
                taken += self._take(event, time, doubt_s) or told
        if len(self._tallies) > MOST_SYMPTOMS:
            self._shrink()
        return taken

    def _take(self, event: Event, time: datetime, doubt_s: float) -> bool:
        meaning = meaning_of(event)
        for name in self._gpus.learn(event, time):
            self._rename(name)
            self._stale.update(
                key for kind in SYMPTOM_KINDS for key in self._at.get((kind, self._gpus.of(name, time)), ())
            )
        if meaning.symptom is None and not meaning.cures:
            return False
        event = self._placed(event, meaning)
        if self._places.graph is not self.graph:
            self._places = EventPlaces(self.graph)
        place = self._places.of(event)
        if place.kind == "gpu" and not self.graph.knows(place):
            place = self._gpus.of(place, time)
        if meaning.symptom == "link_down" or "link_down" in meaning.cures:
            place = link_place(place, self.graph)
        meaning = at_place(event, meaning, place)
        self._notices.know(self.graph)
        if self._notices.take(event, time, place, meaning):
            return True
        for kind in meaning.cures:
            self._cure(kind, place, time)
        if meaning.symptom is not None:
            run = event.run()
            key = (meaning.symptom, place, run)
            tally = self._tallies.get(key)
            if tally is None:
                tally = _Tally(event.node, run, time, time, event.severity)
                self._hold(key, tally)
                if place.kind == "gpu" and not is_by_pci(place):
                    self._by_index.setdefault(place, set()).add(key)
            self._stale.add(key)
            tally.add(event, time)
            tally.doubt_s = max(tally.doubt_s, doubt_s)
        return True

    def _rename(self, name: Place) -> None:
        """Put what was told of a GPU by its index or UUID beside what is told of it by its PCI address."""
        for key in self._by_index.pop(name, ()):
            tally = self._tallies.get(key)
            if tally is None:
                continue
            self._let_go(key)
            own = (key[0], self._gpus.of(name, tally.last), key[2])
            known = self._tallies.get(own)
            if known is None:
                self._hold(own, tally)
            else:
                known.merge(tally)
                self._stale.add(own)
        for kind in SYMPTOM_KINDS:
            for moment in self._cures.pop((kind, name), ()):
                self._cure(kind, self._gpus.of(name, moment), moment)

    def _hold(self, key: SymptomKey, tally: _Tally) -> None:
        self._tallies[key] = tally
        self._stale.add(key)
        for healed in _healed_by(key):
            self._at.setdefault(healed, set()).add(key)

    def _let_go(self, key: SymptomKey) -> None:
        del self._tallies[key]
        self._stale.add(key)
        for healed in _healed_by(key):
            self._at[healed].discard(key)
            if not self._at[healed]:
                del self._at[healed]

    def _cure(self, kind: SymptomKind, place: Place, time: datetime) -> None:
        keep_newest(self._cures.setdefault((kind, place), []), time)
        self._stale.update(self._at.get((kind, place), ()))

    def _placed(self, event: Event, meaning: EventMeaning) -> Event:
        """An error that names the rank whose GPU it is of, with that rank's node and GPU where the job tells them."""
        if event.node is not None or meaning.symptom not in _OF_RANKS:
            return event
        rank, placement = event.attributes.get("rank"), self._ranks.placements.of(event.run())
        if placement is None or not isinstance(rank, int):
            return event
        node, gpu = placement.place_of(rank)
        return event if node is None else replace(event, node=node, device=Device(type="gpu", index=gpu))

    def symptoms(self, now: datetime | None = None, clock: datetime | None = None) -> list[Symptom]:
        """Every symptom that began by `now`, the first first; `clock` is the time where reports may yet come."""
        return in_order(self.as_known(now, clock))

    def as_known(self, now: datetime | None = None, clock: datetime | None = None) -> list[Symptom]:
        """The same in no order. One that nothing was told of since the last call is the same object as then."""
        for key in self._stale:
            tally = self._tallies.get(key)
            if tally is None:
                self._made.pop(key, None)
            else:
                self._made[key] = self._symptom(key, tally)
        self._stale.clear()
        found = [one for one in self._made.values() if now is None or (one.ever or one.first) <= now]
        found += self._notices.symptoms(now)
        found += [one for event in self._ranks.events(clock or now) for one in self._of_rank(event, now)]
        return found

    def _of_rank(self, event: Event, now: datetime | None) -> list[Symptom]:
        """What is found of a rank, said of whose word it is: one node's word of another's rank is a report."""
        fold = SymptomFold(self.graph)
        fold._gpus = self._gpus
        fold.take([event])
        reporter = event.attributes.get("reporter")
        found = fold.symptoms(now)
        return [replace(one, node=reporter) for one in found] if isinstance(reporter, str) else found

    def forget(self, before: datetime) -> int:
        """Let go of what was last seen before a moment; returns how many symptoms went."""
        old = [key for key, tally in self._tallies.items() if tally.last < before]
        for key in old:
            self._let_go(key)
        self._by_index = {name: left for name, keys in self._by_index.items() if (left := keys & self._tallies.keys())}
        for cured in [cured for cured, moments in self._cures.items() if moments[-1] < before]:
            del self._cures[cured]
            self._stale.update(self._at.get(cured, ()))
        self._notices.forget(before)
        return len(old)

    def _symptom(self, key: SymptomKey, tally: _Tally) -> Symptom:
        kind, place, run = key
        cures = self._cures.get((kind, place), ())
        if kind == "guid_twice":
            # While two devices have one GUID, the manager never gets the subnet up.
            cures = sorted((*cures, *self._cures.get((kind, SUBNET), ())))
        cured = next((moment for moment in cures if moment >= tally.last), None)
        before = [moment for moment in cures if moment < tally.last]
        # A link that fails again after it came up fails anew.
        first = next((moment for moment in tally.moments if moment > before[-1]), tally.last) if before else tally.first
        head = tally.events[0][2] if tally.head is None else tally.head[3]
        said = code_description(head.kind, head.code)
        return Symptom(
            kind=kind,
            place=place,
            node=tally.node,
            first=first,
            last=tally.last,
            count=tally.count,
            severity=tally.severity,
            code=head.code,
            action=head.action if head.kind in _OWN_CODES else None,
            run=run,
            events=tuple(dict.fromkeys(ident for ident in (*(one for _, one, _ in tally.events), head.id) if ident)),
            cured=cured,
            points_at=tuple(sorted(tally.points_at)),
            text=head.message[:200],
            meaning="" if said is None else coded(head.kind, head.code, said),
            device=self._device(place, head.device, tally.last),
            relapses=len(before),
            ever=tally.first,
            newest=tally.newest,
            uncertainty_s=tally.doubt_s,
            moments=tuple(tally.moments) if kind in _OF_PROGRAMS and len(tally.moments) > 1 else (),
        )

    def _device(self, place: Place, told: Device, time: datetime) -> Device:
        """A GPU that the kernel called by its PCI address, with the index by which everybody else calls it."""
        if place.kind != "gpu" or told.type not in GPU_TYPES or told.index is not None:
            return told
        index = self._gpus.index_of(place, time)
        return told if index is None else replace(told, index=index)

    def _shrink(self) -> None:
        """Forget the tenth that was last seen longest ago."""
        oldest = sorted(self._tallies, key=lambda key: self._tallies[key].last)
        for key in oldest[: MOST_SYMPTOMS // 10]:
            self._let_go(key)


def _healed_by(key: SymptomKey) -> Iterable[tuple[SymptomKind, Place]]:
    """Whose cures are a symptom's: while two devices have one GUID, the manager never gets the subnet up."""
    kind, place, _run = key
    return {(kind, place), (kind, SUBNET)} if kind == "guid_twice" else ((kind, place),)


def keep_newest(moments: list[datetime], time: datetime) -> None:
    """Put a moment among the newest ones, in order."""
    insort(moments, time)
    if len(moments) > _MOST_MOMENTS:
        del moments[0]

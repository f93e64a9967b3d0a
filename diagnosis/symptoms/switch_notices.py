"""What a subnet manager's log says of cables without naming them: which link went, and whether it came back.

A switch's notice (trap 128) says that one of its links changed: not which, nor whether it is down or up.

- A port that vanishes or returns within seconds is what its switch gave notice of; a switch that vanishes or returns,
  what its neighbours did.
- Two switches that give notice at the same moment share a cable: that one changed. It was up before the first time,
  so the second time it is up again.
- A notice that stays alone is of one of the switch's links, nobody says which: the far switch's notice took the way
  that was lost. The place is the switch.
- A port that no request gets through is down; a port's own words (`changed state from ACTIVE to DOWN`) say so, and so
  does who looks later (`iblinkinfo --diff`): a notice of its switch that stayed alone was of this port.

    notices = SwitchNotices(graph)
    notices.take(event, time, place, meaning)   # in any order, within _LATE
    notices.symptoms(now)                       # `link_down` at cables' ends, `switch_notice` at switches
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import Literal, NamedTuple

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.lost_ways import Way, port_at, reasons, way_of
from diagnosis.symptoms.meaning import EventMeaning
from diagnosis.symptoms.symptom import Symptom, SymptomKind
from store.records.event import Event

# A sweep tells what vanished some time after the notice: longer in large fabrics, or where traps are ignored.
_SWEEP = timedelta(seconds=12)
# Several ports of one switch that a sweep finds gone at once: it took as long as their notices lasted.
_LONG_SWEEP = timedelta(minutes=1)
_BEFORE_NOTICE = timedelta(milliseconds=100)
# Both ends of a cable see it at once; the two traps take their own ways.
_SAME = timedelta(seconds=1)
# Two notices so near to each other that nothing else is their cause.
_TIGHT = timedelta(milliseconds=50)
# A link that was lost with one switch's word alone comes back with two: so long after it nobody thinks of it any more.
_AWAITED = timedelta(hours=1)
# Traps of one switch that many of its links sent at once; a link that falls trains for longer before it is up.
_BURST, _NOTHING = timedelta(milliseconds=50), timedelta()
# What is older than this beside the newest is settled: nothing that comes changes it.
_LATE = timedelta(minutes=2)
# Changes that are held before they are settled, and cables and switches of which something is known.
_MOST_CHANGES, _MOST_PLACES = 4096, 65_536
_MOST_EVENTS, _MOST_FALLS = 5, 32

_GONE, _DOWN = EventMeaning("switch_gone"), EventMeaning("link_down")
_time_of = attrgetter("time")
_Word = Literal["notice", "gone", "found", "twice", "down", "up"]


class _Change(NamedTuple):
    """What a line says of a place."""

    time: datetime
    word: _Word
    place: Place
    event: str
    way: Way | None = None  # of a request that was lost there


@dataclass(slots=True)
class _LinkState:
    """A cable, or a switch of which one link is meant: since when it is down, and how often it came back."""

    ever: datetime
    first: datetime
    last: datetime
    down: datetime | None = None
    cured: datetime | None = None
    relapses: int = 0
    count: int = 0
    events: list[str] = field(default_factory=list)
    single: bool = False  # the one notice of its moment
    falls: list[datetime] = field(default_factory=list)  # the newest

    def fall(self, time: datetime, event: str) -> None:
        """It is down as of a moment; what is down already is so still."""
        if self.down is None:
            self.relapses += self.cured is not None
            self.down = self.first = time
            self.cured, self.events = None, []
            self.falls = [*self.falls[1 - _MOST_FALLS :], time]
        self.last = time
        self.count += 1
        if event and len(self.events) < _MOST_EVENTS:
            self.events.append(event)

    def rise(self, time: datetime) -> None:
        """It is up as of a moment."""
        if self.down is not None:
            self.down, self.cured = None, time

    def copy(self) -> "_LinkState":
        """The same, to go on from."""
        own = (self.ever, self.first, self.last, self.down, self.cured)
        return _LinkState(*own, self.relapses, self.count, list(self.events), self.single, list(self.falls))


_States = dict[Place, _LinkState]
_Said = tuple[datetime, str, Place, str]


def link_place(place: Place, graph: DeviceGraph) -> Place:
    """The place that stands for a cable whichever end is named: a host's adapter, of two switches the first port."""
    if place.kind != "port":
        return place
    far = graph.far_end(place)
    if far is None:
        return place
    return far if far.kind == "nic" else min(place, far)


def at_place(event: Event, meaning: EventMeaning, place: Place) -> EventMeaning:
    """What a meaning is at a place: a switch whose port is gone is gone, a port that does not answer has no link."""
    if meaning.symptom == "link_down" and place.kind == "switch":
        return _GONE
    if event.kind == "smp_timeout" and place.kind in ("port", "nic"):
        return _DOWN
    return meaning


class _Trunks:
    """The cables between switches of a graph, looked up once."""

    def __init__(self, graph: DeviceGraph) -> None:
        self.graph = graph
        self._known: dict[Place, dict[Place, list[Place]]] = {}
        self._ends: dict[Place, frozenset[Place]] = {}

    def of(self, switch: Place) -> dict[Place, list[Place]]:
        """The neighbours of a switch, each with the places of the cables to it."""
        if switch not in self._known:
            found: dict[Place, list[Place]] = {}
            for port in self.graph.children(switch, "port"):
                far = self.graph.far_end(port)
                other = None if far is None or far.kind != "port" else self.switch_of(far)
                if far is not None and other is not None:
                    found.setdefault(other, []).append(min(port, far))
            self._known[switch] = found
        return self._known[switch]

    def switch_of(self, end: Place) -> Place | None:
        """The switch that a port is of."""
        return next((parent for parent in self.graph.parents(end) if parent.kind == "switch"), None)

    def ends(self, link: Place) -> frozenset[Place]:
        """The switches at both ends of a link."""
        if link in self._ends:
            return self._ends[link]
        near = link if link.kind == "port" else self.graph.far_end(link)
        far = None if near is None else self.graph.far_end(near)
        found = (self.switch_of(end) for end in (near, far) if end is not None and end.kind == "port")
        ends = frozenset(switch for switch in found if switch is not None)
        if far is not None:  # who invents names fills no memory
            self._ends[link] = ends
        return ends


class SwitchNotices:
    """Changes of links as they come."""

    def __init__(self, graph: DeviceGraph) -> None:
        self._trunks = _Trunks(graph)
        self._changes: list[_Change] = []
        self._settled: _States = {}
        self._newest: _States | None = None  # as of the last change, until another one comes

    def know(self, graph: DeviceGraph) -> None:
        """Go on with a newer graph."""
        if graph is not self._trunks.graph:
            self._trunks, self._newest = _Trunks(graph), None

    def take(self, event: Event, time: datetime, place: Place, meaning: EventMeaning) -> bool:
        """Whether an event is told of by this alone, and by no symptom of its own."""
        change = self._change(event, time, place, meaning)
        if change is None:
            return False
        if self._changes and time < self._changes[-1].time - _LATE:
            return change.word == "notice"
        insort(self._changes, change)
        self._newest = None
        self._settle()
        return change.word in ("notice", "down", "up")

    def _change(self, event: Event, time: datetime, place: Place, meaning: EventMeaning) -> _Change | None:
        ident = event.id or ""
        if meaning.symptom == "switch_notice":
            return _Change(time, "notice", place, ident) if place.kind == "switch" else None
        if meaning.symptom == "guid_twice":
            return _Change(time, "twice", place, ident) if place.kind == "nic" else None
        if event.kind == "smp_timeout" and place.kind in ("port", "nic"):
            return _Change(time, "down", place, ident, way_of(event))
        falls, rises = meaning.symptom in ("link_down", "switch_gone"), "link_down" in meaning.cures
        if not falls and not rises:
            return None
        if place.kind == "port" and self._trunks.graph.far_end(place) is not None:
            return _Change(time, "down" if falls else "up", place, ident)
        return _Change(time, "gone" if falls else "found", place, ident) if place.kind in ("nic", "switch") else None

    def symptoms(self, now: datetime | None = None) -> list[Symptom]:
        """What is known of cables and of switches as of a moment."""
        states = self._newest
        if now is not None and self._changes and now < self._changes[-1].time:
            known = self._changes[: bisect_right(self._changes, now, key=_time_of)]
            states = _Reading(self._trunks, self._settled).read(known)
        elif states is None:
            states = self._newest = _Reading(self._trunks, self._settled).read(self._changes)
        return [_symptom(place, state) for place, state in states.items()]

    def falls(self) -> dict[Place, list[datetime]]:
        """When each cable between switches went down, the newest times."""
        states = _Reading(self._trunks, self._settled).read(self._changes).items()
        return {place: state.falls for place, state in states if place.kind == "port"}

    def forget(self, before: datetime) -> None:
        """Let go of links that are well and were so before a moment."""
        for place in [place for place, one in self._settled.items() if one.cured is not None and one.cured < before]:
            del self._settled[place]

    def _settle(self) -> None:
        """Read what is too old to change, or too much, once and for all."""
        changes = self._changes
        old = changes[-1].time - 2 * _LATE
        if changes[0].time >= old and len(changes) <= _MOST_CHANGES:
            return
        keep = bisect_right(changes, changes[-1].time - _LATE, key=_time_of)
        keep = max(keep, len(changes) - _MOST_CHANGES // 2, 1)
        # Cut where it was quiet: what belongs together stays together.
        begin = keep // 2
        keep = 1 + max(range(begin, keep), key=lambda place: (changes[place + 1].time - changes[place].time, place))
        self._settled = _Reading(self._trunks, self._settled).read(changes[:keep])
        while len(self._settled) > _MOST_PLACES:
            del self._settled[next(iter(self._settled))]
        del changes[:keep]


class _Reading:
    """One pass over the changes of a stretch of time, in the order of time."""

    def __init__(self, trunks: _Trunks, before: _States) -> None:
        self._trunks = trunks
        self._states: _States = {place: state.copy() for place, state in before.items()}
        self._notices: dict[Place, list[datetime]] = defaultdict(list)
        self._events: dict[tuple[Place, datetime], str] = {}
        self._pairs: dict[Place, dict[datetime, Place]] = defaultdict(dict)
        self._falls: list[_Said] = []  # notices that a link's own loss explains

    def read(self, changes: Sequence[_Change]) -> _States:
        """The state of every cable, and of every switch with a notice that nothing explains, after the changes."""
        changes = self._with_reasons(changes)
        for change in changes:
            if change.word == "notice":
                own = self._notices[change.place]
                if not own or change.time - own[-1] > _BURST:
                    own.append(change.time)
                    self._events[change.place, change.time] = change.event
        for switch, at, far, far_at in self._paired(_TIGHT):
            self._pairs[switch][at] = far
            self._pairs[far][far_at] = switch
        self._explain(changes)
        return self._follow(changes)

    def _with_reasons(self, changes: Sequence[_Change]) -> Sequence[_Change]:
        """The same, where what was lost with the way to it is put down to that way."""
        graph, told, lost = self._trunks.graph, list(changes), list[tuple[int, Way, datetime]]()
        for place, change in enumerate(changes):
            if change.way is not None:
                lost.append((place, change.way, change.time))
        begin = 0
        for end in range(1, len(lost) + 1):
            if end < len(lost) and lost[end][2] - lost[end - 1][2] <= _SAME:
                continue
            group, begin = lost[begin:end], end
            of = reasons((way for _, way, _ in group), graph)
            for place, way, _ in group:
                port = port_at(of[way], graph) if of[way] != way else None
                if port is not None:
                    told[place] = told[place]._replace(place=port)
        return told

    def _explain(self, changes: Sequence[_Change]) -> None:
        """What is told by name accounts for notices; of one sweep, what is lost with a switch comes after it."""
        twice: set[Place] = set()
        said: dict[tuple[Place, str], datetime] = {}
        named = [change for change in changes if change.word != "notice"]
        together = self._gone_together(named)
        for change in sorted(named, key=lambda one: one.time - (_BURST if one.place.kind == "switch" else _NOTHING)):
            if change.place.kind == "switch":
                self._explain_switch(change)
            elif change.word in ("down", "up") and change.place.kind == "port":
                link = link_place(change.place, self._trunks.graph), change.word
                # Each request that gets no answer names it again.
                if link not in said or change.time - said[link] > _SWEEP:
                    self._explain_link(change)
                said[link] = change.time
            else:
                self._explain_end(change, _LONG_SWEEP if change in together else _SWEEP)
                if change.word == "found" and change.place in twice:
                    # The manager never knew it by the other's GUID: that it was pulled, its switch alone told.
                    self._explain_end(change)
                    twice.discard(change.place)
                elif change.word == "twice":
                    twice.add(change.place)

    def _follow(self, changes: Sequence[_Change]) -> _States:
        """Go through what the changes say of links, in order."""
        said: list[_Said] = list(self._falls)
        for switch, at, far, far_at in list(self._paired(_SAME)):
            self._notices[switch].remove(at)
            self._notices[far].remove(far_at)
            cables = self._trunks.of(switch)[far]
            end = cables[0] if len(cables) == 1 else switch
            said.append((min(at, far_at), "toggle", end, self._events.get((switch, at), "")))
        for switch, at, is_single in self._left():
            said.append((at, "alone" if is_single else "notice", switch, self._events.get((switch, at), "")))
        gone = {change.place for change in changes if change.word == "gone"}  # these have a symptom of their own
        for change in changes:
            if change.word in ("down", "up") and change.place not in gone:
                said.append((change.time, change.word, link_place(change.place, self._trunks.graph), change.event))
            elif change.word == "found" and change.place.kind == "switch":
                cables = [cable for ends in self._trunks.of(change.place).values() for cable in ends]
                said += [(change.time, "up", cable, change.event) for cable in cables]
            elif change.word == "found":
                said.append((change.time, "up", change.place, change.event))
        for time, word, place, event in sorted(said):
            self._hear(time, word, place, event)
        return self._states

    def _left(self) -> Iterable[tuple[Place, datetime, bool]]:
        """The notices that nothing explains, and whether each is the only one of its moment."""
        left = sorted((at, switch) for switch, alone in self._notices.items() for at in alone)
        for place, (at, switch) in enumerate(left):
            before = place > 0 and at - left[place - 1][0] <= _SAME and left[place - 1][1] != switch
            after = place + 1 < len(left) and left[place + 1][0] - at <= _SAME and left[place + 1][1] != switch
            yield switch, at, not before and not after

    def _hear(self, time: datetime, word: str, place: Place, event: str) -> None:
        state = self._states.get(place)
        if word == "up" or (word in ("toggle", "alone") and state is not None and state.down is not None):
            if state is not None:
                state.rise(time)
            return
        if word == "alone" and (known := self._down_at(place, time)) is not None:
            # A link that is known to be down comes back, and the other end's word takes its way.
            known.rise(time)
            return
        if state is None:
            state = self._states[place] = _LinkState(time, time, time)
        spoke = self._awaited(place, time) if place.kind == "port" and word in ("toggle", "down") else None
        if spoke is not None:
            # It went with one switch's word, which is of this cable after all.
            word_of_one = self._states.pop(spoke)
            for ident in word_of_one.events or [event]:
                state.fall(word_of_one.last, ident)
        if spoke is not None and word == "toggle":
            state.rise(time)  # and comes back with both
        else:
            state.fall(time, event)
            state.single = word in ("alone", "toggle")  # of two switches with several cables, one of these

    def _down_at(self, switch: Place, time: datetime) -> _LinkState | None:
        """Of a switch's cables to others the one that went down last and is down still."""
        cables = (cable for ends in self._trunks.of(switch).values() for cable in ends)
        states = (state for cable in cables if (state := self._states.get(cable)) is not None)
        down = [(state.down, state) for state in states if state.down is not None and time - state.down <= _AWAITED]
        return max(down, key=lambda one: one[0])[1] if down else None

    def _awaited(self, link: Place, time: datetime) -> Place | None:
        """That one of a link's switches whose notice stayed alone, if there is one of late."""
        for switch in sorted(self._trunks.ends(link)):
            state = self._states.get(switch)
            if state is not None and state.single and state.down is not None and time - state.down <= _AWAITED:
                return switch
        return None

    def _paired(self, within: timedelta) -> Iterable[tuple[Place, datetime, Place, datetime]]:
        """Notices of two neighbours at one moment, the nearest first; each notice once."""
        near = []
        for switch, times in self._notices.items():
            for other in self._trunks.of(switch):
                if other < switch or not self._notices.get(other):
                    continue
                far = self._notices[other]
                for at in times:
                    for place in range(bisect_right(far, at - within), bisect_right(far, at + within)):
                        near.append((abs(far[place] - at), at, switch, far[place], other))
        used: set[tuple[Place, datetime]] = set()
        for _, at, switch, far_at, other in sorted(near):
            if (switch, at) not in used and (other, far_at) not in used:
                used |= {(switch, at), (other, far_at)}
                yield switch, at, other, far_at

    def _explain_switch(self, change: _Change) -> None:
        """A switch that vanishes or returns: what it and its neighbours told at the moment before was of that."""
        end = change.time + _BEFORE_NOTICE
        moment = self._moment(change.place, change.time - _SWEEP, end)
        if moment is None:
            return
        own = self._notices.get(change.place, [])
        self._notices[change.place] = [at for at in own if not moment <= at <= moment + _SAME]
        for other in self._trunks.of(change.place):
            others = [at for at, far in self._pairs[other].items() if far != change.place]
            self._spend(other, moment + _SAME, others, moment)

    def _moment(self, switch: Place, begin: datetime, end: datetime) -> datetime | None:
        """When a switch or its neighbours last told something that nothing else explains: the first within a second."""
        told = []
        for other in (switch, *self._trunks.of(switch)):
            own, pairs = self._notices.get(other, []), self._pairs[other]
            near = own[bisect_right(own, begin) : bisect_right(own, end)]
            told += [at for at in near if other == switch or pairs.get(at, switch) == switch]
        last = max(told, default=None)
        return None if last is None else min(at for at in told if last - at <= _SAME)

    def _gone_together(self, named: Iterable[_Change]) -> set[_Change]:
        """The adapters that vanish at one moment with others of their switch."""
        by_switch: dict[Place, list[_Change]] = defaultdict(list)
        for change in named:
            if change.word == "gone" and change.place.kind == "nic":
                for switch in self._trunks.ends(change.place):
                    by_switch[switch].append(change)
        pairs = (pair for lost in by_switch.values() for pair in pairwise(sorted(lost)))
        near = (pair for pair in pairs if pair[1].time - pair[0].time <= _SAME and pair[0].place != pair[1].place)
        return {one for pair in near for one in pair}

    def _explain_end(self, change: _Change, sweep: timedelta = _SWEEP) -> None:
        """An adapter that vanishes or returns: one notice of its switch was of that."""
        for switch in self._trunks.ends(change.place):
            self._spend(switch, change.time + _BEFORE_NOTICE, self._pairs[switch], change.time - sweep)

    def _explain_link(self, change: _Change) -> None:
        """What both ends of a cable told at one moment was of that; else what one of them told alone."""
        ends = sorted(self._trunks.ends(change.place))
        if len(ends) != 2:
            return
        near, far = (self._free(switch, other, change.time) for switch, other in (ends, ends[::-1]))
        for at in reversed(near):
            both = [far_at for far_at in far if abs(far_at - at) <= _SAME]
            if both:
                self._notices[ends[0]].remove(at)
                self._notices[ends[1]].remove(both[-1])
                self._note_fall(change, ends[0], at)
                return
        for switch, free in zip(ends, (near, far), strict=True):
            alone = [at for at in free if at not in self._pairs[switch] and at >= change.time - _SAME]
            if alone:
                self._notices[switch].remove(alone[-1])
                self._note_fall(change, switch, alone[-1])
                return

    def _note_fall(self, change: _Change, switch: Place, at: datetime) -> None:
        """A notice of a link that is down is its first sign: a verdict that rested on the notice is this link's."""
        if change.word == "down":
            self._falls.append((at, "down", link_place(change.place, self._trunks.graph), self._events[switch, at]))

    def _free(self, switch: Place, far: Place, time: datetime) -> list[datetime]:
        """The notices of a switch before a moment that are not those of a cable to another than `far`."""
        own, pairs = self._notices.get(switch, []), self._pairs[switch]
        place = slice(bisect_right(own, time - _SWEEP), bisect_right(own, time + _BEFORE_NOTICE))
        return [at for at in own[place] if pairs.get(at, far) == far]

    def _spend(self, switch: Place, end: datetime, but: Collection[datetime], begin: datetime) -> None:
        """Take the last notice of a switch within a time as explained, but for some."""
        own = self._notices.get(switch, [])
        for place in range(bisect_right(own, end) - 1, -1, -1):
            if own[place] < begin:
                return
            if own[place] not in but:
                del own[place]
                return


def _symptom(place: Place, state: _LinkState) -> Symptom:
    kind: SymptomKind = "switch_notice" if place.kind == "switch" and not state.single else "link_down"
    words = f"the link of {place.name} went down"
    if place.kind == "switch":
        words = f"{place.name} tells that one of its links changed, and nobody says which"
    return Symptom(
        kind=kind,
        place=place,
        node=None,
        first=state.first,
        last=state.last,
        count=state.count,
        severity="warning" if kind == "switch_notice" else "error",
        events=tuple(state.events),
        cured=state.cured,
        text=words,
        relapses=state.relapses,
        ever=state.ever,
    )

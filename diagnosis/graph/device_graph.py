"""The devices of a cluster: what hangs on what, which ports a cable joins, and every name that a device bears.

    graph.place_of("0xb83fd203001000c0")          # Place("switch", "leaf04"): a GUID, LID, address, netdev, serial ...
    graph.above(Place("nic", "gpu-017/mlx5_3"))   # its node, its leaf's port, the leaf ...
    graph.below(Place("switch", "leaf04"))        # every port and adapter that it serves

A group that parts share (a rack, a power feed, a file server, a driver's version) is a place like any other.
A cable is no place of its own in memory: it is the pair of ends that `join` was told, and is made when it is asked for.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from diagnosis.graph.place import Place
from store.records.verdict import CAUSE_CLASSES, CauseClass

_NONE: tuple[Place, ...] = ()
_GUID = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII)
# Names of one place that are held, and that one name is looked up among.
_MOST_NAMES = 64
_MOST_BEARERS = 16

_Name = str | int


class DeviceGraph:
    """A graph as of one moment. Loops are allowed: what was seen once is not gone through again.

    Names are looked up in any case; one that several places bear means none of them.
    """

    def __init__(self) -> None:
        self.gpus: Mapping[str, int] = {}  # how many each node has, where its inventory counts them
        # Tuples where there are few: of a hundred thousand adapters each byte counts.
        self._parents: dict[Place, tuple[Place, ...]] = {}
        self._children: dict[Place, list[Place]] = {}
        self._names: dict[Place, tuple[_Name, ...]] = {}
        self._bearers: dict[_Name, Place | list[Place]] = {}
        self._far: dict[Place, Place] = {}
        self._kinds: dict[CauseClass, int] = {}
        self._nodes_below: dict[Place, tuple[str, ...]] = {}  # of places that were asked for, while nothing changes

    def add(self, place: Place, names: Iterable[str] = ()) -> None:
        """A place, with what else it is called. Its own name is one of its names."""
        if place not in self._parents:
            self._parents[place] = _NONE
            self._kinds[place.kind] = self._kinds.get(place.kind, 0) + 1
            if (lower := place.name.lower()) != place.name:
                self._bear(lower, place)
            elif _GUID.fullmatch(lower):
                self._bear(int(lower, 16), place)
        for name in names:
            self._call(place, name)

    def _call(self, place: Place, name: str) -> None:
        text = name.strip()
        if not text or text == place.name:
            return
        key = _key(text)
        known = self._names.get(place, ())
        if len(known) < _MOST_NAMES and self._bear(key, place):
            self._names[place] = (*known, key if isinstance(key, int) else text)

    def _bear(self, key: _Name, place: Place) -> bool:
        """Note who bears a name; whether that is news."""
        others = self._bearers.get(key)
        if others is None:
            self._bearers[key] = place
            return True
        if not isinstance(others, list):
            if others == place:
                return False
            self._bearers[key] = [others, place]
            return True
        if len(others) < _MOST_BEARERS and place not in others:
            others.append(place)
            return True
        return False

    def hang(self, child: Place, parent: Place) -> None:
        """Say that one place depends on another: when the parent fails, the child feels it."""
        if child not in self._parents:
            self.add(child)
        if parent not in self._parents:
            self.add(parent)
        own = self._parents[child]
        if parent not in own:
            self._nodes_below.clear()
            self._parents[child] = (*own, parent)
            self._children.setdefault(parent, []).append(child)

    def join(self, end: Place, other: Place) -> None:
        """Say that a cable joins two ports (or adapters). An end has one cable: the first that was told."""
        if end != other and end not in self._far and other not in self._far:
            self.add(end)
            self.add(other)
            self._far[end], self._far[other] = other, end
            self._nodes_below.clear()

    def places(self, kind: CauseClass | None = None) -> list[Place]:
        """Every place but cables, or those of a class, in no order."""
        if kind == "cable":
            return [cable for end in self._far if (cable := self._cable(end)) is not None and end < self._far[end]]
        if kind is not None and kind not in self._kinds:
            return []
        return [place for place in self._parents if kind is None or place.kind == kind]

    def knows(self, place: Place) -> bool:
        """Whether the place is in the graph."""
        return place in self._parents or bool(place.kind == "cable" and self._ends(place))

    def place_of(self, name: str, kind: CauseClass | None = None) -> Place | None:
        """Whom a name means; None where nobody bears it, or several do."""
        found = self._bearing(name.strip(), kind)
        return found[0] if len(found) == 1 else None

    def _bearing(self, text: str, kind: CauseClass | None) -> list[Place]:
        key = _key(text)
        found: list[Place] = []
        borne = self._bearers.get(key)
        for place in borne if isinstance(borne, list) else () if borne is None else (borne,):
            if kind is None or place.kind == kind:
                found.append(place)
        spelled = text.lower() if isinstance(key, str) else _text(key)
        for each in (kind,) if kind is not None else self._kinds:
            place = Place(each, spelled)
            if place in self._parents and place not in found:
                found.append(place)
        if kind in (None, "cable") and "--" in text and (cable := self._cable_of(text)) is not None:
            found.append(cable)
        if not found and kind in (None, "nic"):
            found += self._adapter(spelled)
        return found

    def _adapter(self, text: str) -> list[Place]:
        """An adapter as others write it: `gpu-017 mlx5_3` of its description, `gpu-017/mlx5_3/1` with its port."""
        node, blank, rest = text.partition(" ")
        if blank and "/" not in text and " " not in rest:
            return self._bearing(f"{node}/{rest}", "nic")
        head, slash, port = text.rpartition("/")
        return self._bearing(head, "nic") if slash and "/" in head and port.isdecimal() and len(port) < 4 else []

    def names_of(self, place: Place) -> tuple[str, ...]:
        """What a place is called, its own name first."""
        return (place.name, *map(_text, self._names.get(place, ())))

    def parents(self, place: Place) -> Collection[Place]:
        """What a place depends on directly."""
        own = self._parents.get(place, _NONE)
        cable = self._cable(place)
        return own if cable is None else (*own, cable)

    def children(self, place: Place, kind: CauseClass | None = None) -> Collection[Place]:
        """What depends on a place directly; of a class where one is given. Of a cable both its ends."""
        own: Collection[Place] = self._ends(place) if place.kind == "cable" else self._children.get(place, _NONE)
        return own if kind is None else [child for child in own if child.kind == kind]

    def above(self, place: Place) -> list[Place]:
        """All that a place depends on, the nearest first."""
        return list(self._walk(place, up=True))

    def below(self, place: Place, kind: CauseClass | None = None) -> list[Place]:
        """All that depends on a place, the nearest first; of a class where one is given."""
        return [found for found in self._walk(place, up=False) if kind is None or found.kind == kind]

    def nodes_below(self, place: Place) -> tuple[str, ...]:
        """The nodes that depend on a place, or whose parts do (of a node's part: its node), by name."""
        if place.kind == "node":
            return (place.name,)
        known = self._nodes_below.get(place)
        if known is None:
            parts = (place, *self._walk(place, up=False))
            found = {node for part in parts if (node := self.node_of(part)) is not None}
            known = tuple(sorted(found))
            if place in self._children:  # else somebody may have invented it
                self._nodes_below[place] = known
        return known

    def node_of(self, place: Place) -> str | None:
        """The node that a part is of; None for what is of none."""
        if place.kind == "node":
            return place.name
        return next((parent.name for parent in self._parents.get(place, _NONE) if parent.kind == "node"), None)

    def far_end(self, end: Place) -> Place | None:
        """The other end of a port's or adapter's cable."""
        return self._far.get(end)

    def _cable(self, end: Place) -> Place | None:
        far = self._far.get(end)
        return None if far is None else Place("cable", "--".join(sorted((end.name, far.name))))

    def _cable_of(self, name: str) -> Place | None:
        """The cable that is named by both its ends, in any order and case."""
        one, _, other = name.partition("--")
        near = [place for kind in ("port", "nic") for place in self._bearing(one.strip(), _as_class(kind))]
        far = [place for kind in ("port", "nic") for place in self._bearing(other.strip(), _as_class(kind))]
        return next((self._cable(end) for end in near if self._far.get(end) in far), None)

    def _ends(self, cable: Place) -> tuple[Place, ...]:
        one, _, other = cable.name.partition("--")
        for kind in ("nic", "port"):
            end = Place(_as_class(kind), one)
            far = self._far.get(end)
            if far is not None and far.name == other:
                return end, far
        return _NONE

    def _walk(self, place: Place, *, up: bool) -> Iterator[Place]:
        seen = {place}
        waiting = deque([place])
        while waiting:
            near = waiting.popleft()
            for far in sorted(self.parents(near)) if up else self.children(near):
                if far not in seen:
                    seen.add(far)
                    waiting.append(far)
                    yield far


_CLASSES = {kind: kind for kind in CAUSE_CLASSES}


def _as_class(text: str) -> CauseClass:
    return _CLASSES[text]  # type: ignore[index]


def _key(name: str) -> _Name:
    """How a name is looked up: GUIDs and LIDs by their number, which takes less memory; any other in lower case."""
    lower = name.lower()
    if lower.startswith("0x") and _GUID.fullmatch(lower):
        return int(lower, 16)
    if lower.startswith("lid ") and lower[4:].isdecimal() and len(lower) < 12:
        return -int(lower[4:])
    return name if lower == name else lower


def _text(name: _Name) -> str:
    if isinstance(name, str):
        return name
    return f"0x{name:016x}" if name > 0 else f"lid {-name}"

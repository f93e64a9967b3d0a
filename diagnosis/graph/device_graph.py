"""The devices of a cluster: what hangs on what, which ports a cable joins, and every name that a device bears.

    graph.place_of("0xb83fd203001000c0")          # Place("switch", "leaf04"): a GUID, LID, address, netdev, serial ...
    graph.above(Place("nic", "gpu-017/mlx5_3"))   # its node, its leaf's port, the leaf ...
    graph.below(Place("switch", "leaf04"))        # every port, adapter and node that it serves

A group that parts share (a rack, a power feed, a file server, a driver's version) is a place like any other.
"""

from collections.abc import Collection, Iterable, Sequence

from diagnosis.graph.place import Place
from store.records.verdict import CauseClass

_NONE: frozenset[Place] = frozenset()


class DeviceGraph:
    """A graph as of one moment. Loops are allowed: what was seen once is not gone through again."""

    def __init__(self) -> None:
        self._parents: dict[Place, set[Place]] = {}
        self._children: dict[Place, set[Place]] = {}
        self._places: dict[str, list[Place]] = {}
        self._names: dict[Place, list[str]] = {}
        self._far: dict[Place, Place] = {}

    def add(self, place: Place, names: Iterable[str] = ()) -> None:
        """A place, with what else it is called. Its own name is one of its names."""
        known = self._names.setdefault(place, [])
        for name in (place.name, *names):
            if name and name not in known:
                known.append(name)
                self._places.setdefault(name.lower(), []).append(place)

    def hang(self, child: Place, parent: Place) -> None:
        """Say that one place depends on another: when the parent fails, the child feels it."""
        self.add(child)
        self.add(parent)
        self._parents.setdefault(child, set()).add(parent)
        self._children.setdefault(parent, set()).add(child)

    def join(self, end: Place, other: Place) -> None:
        """Say that a cable joins two ports (or adapters)."""
        self._far[end], self._far[other] = other, end

    def places(self, kind: CauseClass | None = None) -> list[Place]:
        """Every place, or those of a class, in no order."""
        return [place for place in self._names if kind is None or place.kind == kind]

    def knows(self, place: Place) -> bool:
        """Whether the place is in the graph."""
        return place in self._names

    def place_of(self, name: str, kind: CauseClass | None = None) -> Place | None:
        """Whom a name means; None where nobody bears it, or several do."""
        found = [place for place in self._places.get(name.strip().lower(), ()) if kind is None or place.kind == kind]
        return found[0] if len(found) == 1 else None

    def names_of(self, place: Place) -> tuple[str, ...]:
        """What a place is called, its own name first."""
        return tuple(self._names.get(place, (place.name,)))

    def parents(self, place: Place) -> Collection[Place]:
        """What a place depends on directly."""
        return self._parents.get(place, _NONE)

    def children(self, place: Place, kind: CauseClass | None = None) -> Collection[Place]:
        """What depends on a place directly; of a class where one is given."""
        own = self._children.get(place, _NONE)
        return own if kind is None else [child for child in own if child.kind == kind]

    def above(self, place: Place) -> list[Place]:
        """All that a place depends on, the nearest first."""
        return self._walk(place, self._parents)

    def below(self, place: Place, kind: CauseClass | None = None) -> list[Place]:
        """All that depends on a place, the nearest first; of a class where one is given."""
        return [found for found in self._walk(place, self._children) if kind is None or found.kind == kind]

    def nodes_below(self, place: Place) -> tuple[str, ...]:
        """The nodes that depend on a place (of a node's part: its node), by name."""
        if place.kind == "node":
            return (place.name,)
        found = {below.name for below in self.below(place, "node")}
        found |= {found for part in self.below(place) if (found := self.node_of(part)) is not None}
        own = self.node_of(place)
        return tuple(sorted(found | ({own} if own else set())))

    def node_of(self, place: Place) -> str | None:
        """The node that a part is of; None for what is of none."""
        if place.kind == "node":
            return place.name
        return next((parent.name for parent in self.parents(place) if parent.kind == "node"), None)

    def far_end(self, end: Place) -> Place | None:
        """The other end of a port's or adapter's cable."""
        return self._far.get(end)

    def _walk(self, place: Place, onward: dict[Place, set[Place]]) -> list[Place]:
        found: dict[Place, None] = {}
        now: Sequence[Place] = [place]
        while now:
            new = {far for near in now for far in onward.get(near, _NONE) if far not in found and far != place}
            found.update(dict.fromkeys(sorted(new)))
            now = list(new)
        return list(found)

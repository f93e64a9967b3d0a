"""Where the ranks of a process group stand: which collective each has entered, and which each has completed.

Ranks report it in many ways (a watchdog's time-out, a flight recorder's dump, NCCL's RAS, the training hook); all come
as events of the kind `collective_wait`, with sets of ranks as attributes (`store/runs/rank_set.py`):

    ranks           those that report
    members, world  those of the group, or how many they are, where the source tells
    last_enqueued   the number of the last collective that each has entered; last_started, that its GPU has begun;
                    last_completed, that it has left
    waiting, absent, stopped    ranks that are in the collective; that have not come; whose process does not run
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from store.records.event import Event
from store.runs.rank_set import MOST_RANKS, is_cut, numbers_of, ranks_of

WAIT = "collective_wait"
# Groups of one run that are held, the newest reported.
MOST_GROUPS = 4_096
# Who reports of a group: nodes that are held by name.
_MOST_WITNESSES = 64
# A gap in the ranks that report, where nobody says how many ranks there are: of so many, and so small.
_LEAST_OF_GAP, _MOST_OF_GAP = 3, 0.1
_HOST = re.compile(r"(?P<rank>\d{1,7})=(?P<host>[\w.:%-]{1,80})/(?P<gpu>\d{0,4})", re.ASCII)
# What was reported so long before is of another hang.
_SAME_HANG = timedelta(minutes=45)


@dataclass(slots=True)
class GroupState:
    """One process group of one run. `first` and `last` are when it was reported to wait."""

    name: str
    first: datetime
    last: datetime
    members: frozenset[int] = frozenset()
    members_text: str = ""  # as they were last told: every rank tells the same
    world: int | None = None
    enqueued: dict[int, int] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)
    is_cut: bool = False  # a report told of more ranks than it named: silence means nothing
    waiting: set[int] = field(default_factory=set)
    absent: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    operations: dict[int, str] = field(default_factory=dict)
    witnesses: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=list)
    hosts: dict[int, tuple[str, int | None]] = field(default_factory=dict)  # addresses, as NCCL's RAS tells them

    def take(self, event: Event, time: datetime, but: Collection[int] = ()) -> None:
        """One report, of all its ranks but some. A newer one of a rank takes the place of its older one."""
        if time - self.last > _SAME_HANG:
            self.__init__(self.name, time, time)  # type: ignore[misc]  # begins anew
        told = event.attributes
        ranks = ranks_of(told.get("ranks")).difference(but)
        if told.get("over") is True:
            self._forget(ranks)
            return
        if len(self.reported) + len(ranks) > 2 * MOST_RANKS:
            return
        self.first, self.last = min(self.first, time), max(self.last, time)
        members = told.get("members")
        if isinstance(members, str) and members != self.members_text:
            self.members_text = members
            self.members |= ranks_of(members)
        world = told.get("world")
        if isinstance(world, int) and not isinstance(world, bool) and 0 < world <= MOST_RANKS:
            self.world = max(world, self.world or 0)
        self.reported |= ranks
        self.is_cut = self.is_cut or is_cut(told.get("ranks")) or bool(told.get("ranks_left_out"))
        for name, kept in (("enqueued", self.enqueued), ("started", self.started), ("completed", self.completed)):
            numbers = numbers_of(told.get(f"last_{name}"), ranks)
            kept.update((rank, number) for rank, number in numbers.items() if rank not in but)
        for name in ("waiting", "absent", "stopped"):
            held: set[int] = getattr(self, name)
            held -= ranks
            held |= ranks_of(told.get(name)).difference(but)
        operation = told.get("operation")
        if isinstance(operation, str):
            self.operations.update(dict.fromkeys(ranks, operation[:40]))
        self._note_hosts(told.get("hosts"))
        if event.node is not None and len(self.witnesses) < _MOST_WITNESSES:
            self.witnesses.add(event.node)
        if event.id is not None and len(self.events) < 5:
            self.events.append(event.id)

    def _forget(self, ranks: Collection[int]) -> None:
        """Ranks that go on: where they stood is past, and would make them late in the next hang."""
        for rank in ranks:
            for numbers in (self.enqueued, self.started, self.completed):
                numbers.pop(rank, None)
            for held in (self.reported, self.waiting, self.absent, self.stopped):
                held.discard(rank)

    def _note_hosts(self, text: object) -> None:
        """`29=172.16.64.213/5`: the address of a rank's node, and its GPU."""
        if isinstance(text, str):
            for match in _HOST.finditer(text[:8000]):
                if len(self.hosts) < 1024:
                    self.hosts[int(match["rank"])] = (match["host"], int(match["gpu"]) if match["gpu"] else None)

    def stands_at(self, rank: int) -> int:
        """The collective that a rank is in: the first that it has entered and not completed, else the last."""
        entered = self.enqueued[rank]
        return min(entered, self.completed.get(rank, entered) + 1)

    def front(self) -> int | None:
        """The number of the collective that is waited for: programs enter more of them ahead."""
        inside = [self.stands_at(rank) for rank in self.enqueued if self.is_inside(rank)]
        return max(inside, default=max(self.enqueued.values(), default=None))

    def is_inside(self, rank: int) -> bool:
        """Whether a rank has entered a collective and not left it."""
        return self.enqueued[rank] > self.completed.get(rank, self.enqueued[rank])

    def waiters(self) -> set[int]:
        """Ranks that have entered a collective and not left it."""
        inside = {rank for rank in self.enqueued if self.is_inside(rank)} | self.waiting
        return inside - self.stopped - self.not_begun()

    def not_begun(self) -> set[int]:
        """Ranks whose GPU has not begun the collective that the GPUs of others are in."""
        front = self.front()
        if front is None or not any(number >= front for number in self.started.values()):
            return set()
        return {rank for rank, number in self.started.items() if 0 <= number < front}

    def behind(self) -> set[int]:
        """Ranks that have not entered the collective that others are in, or not begun it, or do not run."""
        front = self.front()
        if front is None:
            return (self.absent - self.waiting) | self.stopped
        late = {rank for rank, number in self.enqueued.items() if number < front}
        return late | self.not_begun() | (self.absent - self.waiting) | self.stopped

    def all_ranks(self, world: int | None) -> frozenset[int]:
        """The group's members; where no one tells them, all ranks of the run for the group that all are in."""
        if self.members:
            return self.members
        size = self.world or world
        return frozenset(range(size)) if size is not None and is_default(self.name) else frozenset()

    def silent(self, world: int | None, heard: Collection[int] = ()) -> set[int]:
        """Members that nobody has reported of while the others did; `heard` are the ranks that any group heard of."""
        everyone = self.all_ranks(world)
        if len(self.reported) < 2 and len(everyone) > 2:
            return set()
        spoken = self.reported | self.absent | self.stopped | self.waiting
        if everyone or not is_default(self.name):
            return set(everyone - spoken)
        spoken |= set(heard)  # in its first step a rank may wait elsewhere, and never have entered this group
        if len(spoken) < _LEAST_OF_GAP:
            return set()
        gap = set(range(max(spoken) + 1)) - spoken  # nobody says how many there are: one that is left out is seen
        return gap if len(gap) <= max(1, _MOST_OF_GAP * len(spoken)) else set()


def is_default(name: str) -> bool:
    """Whether a group is the one of all ranks: PyTorch calls it `default_pg`, and numbers it 0."""
    return name in ("", "0", "default", "default_pg", "0(default_pg)")

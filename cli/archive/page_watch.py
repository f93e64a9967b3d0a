"""The pages of telemetry files, in order of time, through the watch that live sources have: what changed is an event.

    watch = PageWatch()
    watch.take(file)
    events = watch.events_until(next_file_begins_us)

Each node has a watch of its own. One look of it is all that is told of the node at one moment, by whichever files: a
table whose rows lie further apart than another's stands until its next row is due. Most looks show what the one before
showed, and tell a watch nothing: it is given those in which something changed, those around a gap, and the few after
something vanished or came, since a watch may wait for a second look.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.telemetry import Sample
from store.telemetry.pages import DevicePlace, PageTable
from store.telemetry.rollups import group_starts, moment_of
from store.telemetry.telemetry_file import TelemetryFile, sample_of

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Sums: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

# Looks after something vanished or came that a watch is given: it may take several for certain.
FOLLOWED = 4
_LONG_AGO = -(2**62)
# Rows of one table that come later than this many intervals after those before lie beyond a gap.
_GAP = 2
ORIGIN = "telemetry"


@dataclass(slots=True)
class _Stream:
    """Tables of the same columns, one after the other; arrays have an entry a node, and grow."""

    interval_us: int = 0
    content: Sums = field(default_factory=lambda: np.zeros(0, np.uint64))
    presence: Sums = field(default_factory=lambda: np.zeros(0, np.uint64))
    last_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def grow(self, nodes: int) -> None:
        """Room for more nodes."""
        more = nodes - len(self.last_us)
        if more > 0:
            self.content, self.presence = (np.r_[a, np.zeros(more, np.uint64)] for a in (self.content, self.presence))
            self.last_us = np.r_[self.last_us, np.full(more, _LONG_AGO)]


@dataclass(frozen=True, slots=True)
class _PendingPages:
    """Pages that were not looked at yet. `table` and `page` say where their rows are."""

    node: Ints
    time_us: Ints
    stream: Ints
    content: Sums
    presence: Sums
    table: Ints
    page: Ints

    def only(self, kept: Flags | Ints) -> "_PendingPages":
        """Those that a mask or a list of positions keeps."""
        return _PendingPages(*(getattr(self, name)[kept] for name in self.__slots__))

    @classmethod
    def joined(cls, parts: Sequence["_PendingPages"]) -> "_PendingPages":
        """One after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class _NodePages:
    """Moments of nodes in order of node and time.

    `page` is of each look and stream the position of its page; -1: there is none. `noted`: the watch is given it.
    """

    node: Ints
    time_us: Ints
    page: Ints
    noted: Flags


@dataclass(slots=True)
class PageWatch:
    """Every node's watch, and the pages that wait for those of other files."""

    nodes: dict[str, int] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _streams: dict[str, int] = field(default_factory=dict)
    _state: list[_Stream] = field(default_factory=list)
    _tables: dict[int, PageTable] = field(default_factory=dict)
    _next_table: int = 0
    _waiting: list[_PendingPages] = field(default_factory=list)
    _watches: dict[int, DeviceWatch] = field(default_factory=dict)
    # Of each node: its newest look, what was shown at it, whether it was noted, and the looks since a change of that.
    _last_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _shown: Sums = field(default_factory=lambda: np.zeros(0, np.uint64))
    _noted: Flags = field(default_factory=lambda: np.zeros(0, bool))
    _since: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def take(self, file: TelemetryFile) -> None:
        """The pages of a file."""
        for table in file.pages:
            if not len(table.node):
                continue
            number = self._streams.setdefault(table.stream, len(self._streams))
            if number == len(self._state):
                self._state.append(_Stream())
            self._state[number].interval_us = table.interval_us or self._state[number].interval_us
            numbers = np.array([self._node(name) for name in file.nodes], dtype=np.int64)
            size = len(table.node)
            self._tables[self._next_table] = table
            self._waiting.append(
                _PendingPages(
                    node=numbers[table.node],
                    time_us=table.time_us,
                    stream=np.full(size, number),
                    content=table.content,
                    presence=table.presence,
                    table=np.full(size, self._next_table),
                    page=np.arange(size),
                )
            )
            self._next_table += 1
        self._grow()

    def _node(self, name: str) -> int:
        number = self.nodes.setdefault(name, len(self.nodes))
        if number == len(self._names):
            self._names.append(name)
        return number

    def _grow(self) -> None:
        more = len(self._names) - len(self._last_us)
        if more > 0:
            self._last_us = np.r_[self._last_us, np.full(more, _LONG_AGO)]
            self._shown = np.r_[self._shown, np.zeros(more, np.uint64)]
            self._noted = np.r_[self._noted, np.ones(more, bool)]
            self._since = np.r_[self._since, np.full(more, FOLLOWED)]
        for stream in self._state:
            stream.grow(len(self._names))

    def events_until(self, until_us: int | None) -> list[Event]:
        """The events of the pages before a moment (None: of all); no page before it may come after this."""
        if not self._waiting:
            return []
        waiting = _PendingPages.joined(self._waiting)
        now = np.ones(len(waiting.node), bool) if until_us is None else waiting.time_us < until_us
        self._waiting = [] if now.all() else [waiting.only(~now)]
        pages = waiting.only(now)
        if not len(pages.node):
            return []
        pages = _once(pages)
        changed, present = self._compared(pages)
        looks = self._looks(pages, changed, present)
        events = list(self._watched(pages, looks))
        self._remember(pages, looks)
        events.sort(key=lambda event: (event.time is not None and event.time.timestamp(), event.node or ""))
        return events

    def _compared(self, pages: _PendingPages) -> tuple[Flags, Flags]:
        """Whether each page differs from the one before it of its stream and node, and in what it speaks of."""
        changed, present = np.ones(len(pages.node), bool), np.ones(len(pages.node), bool)
        order = np.lexsort((pages.time_us, pages.node, pages.stream))
        node, stream = pages.node[order], pages.stream[order]
        first = np.r_[True, (node[1:] != node[:-1]) | (stream[1:] != stream[:-1])]
        for name, found in (("content", changed), ("presence", present)):
            sums = getattr(pages, name)[order]
            before = np.r_[np.zeros(1, np.uint64), sums[:-1]]
            known = np.ones(len(sums), bool)
            for number, state in enumerate(self._state):
                mine = first & (stream == number)
                before[mine] = getattr(state, name)[node[mine]]
                known[mine] = state.last_us[node[mine]] > _LONG_AGO
            found[order] = (sums != before) | ~known
        return changed, present

    def _looks(self, pages: _PendingPages, changed: Flags, present: Flags) -> _NodePages:
        starts = group_starts(pages.node, pages.time_us)
        node, time_us = pages.node[starts], pages.time_us[starts]
        look = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(pages.node)]))
        begins = group_starts(node)
        begun = np.repeat(begins, np.diff(np.r_[begins, len(node)]))  # of each look its node's first one
        page = np.full((len(node), len(self._state)), -1, dtype=np.int64)
        page[look, pages.stream] = np.arange(len(pages.node))
        shown = page >= 0
        fastest = min((state.interval_us for state in self._state if state.interval_us), default=0)
        for number, state in enumerate(self._state):
            seen = np.maximum.accumulate(np.where(page[:, number] >= 0, np.arange(len(node)), -1))
            within = seen >= begun
            last_us = np.where(within, time_us[np.maximum(seen, 0)], state.last_us[node])
            stands_us = state.interval_us if state.interval_us * 2 <= fastest * 3 else state.interval_us * 3 // 2
            shown[:, number] |= time_us - last_us < stands_us
        noted = self._noted_looks((node, time_us, begins, begun), (look, changed, present), shown, fastest)
        return _NodePages(node, time_us, page, noted)

    def _noted_looks(
        self,
        looks: tuple[Ints, Ints, Ints, Ints],
        pages: tuple[Ints, Flags, Flags],
        shown: Flags,
        interval_us: int,
    ) -> Flags:
        node, time_us, begins, begun = looks
        look, changed, present = pages
        size = len(node)
        noted, altered = np.zeros(size, bool), np.zeros(size, bool)
        noted[look[changed]] = True
        altered[look[present]] = True
        words = _words(shown)
        before = np.r_[np.zeros(1, np.uint64), words[:-1]]
        before[begins] = self._shown[node[begins]]
        altered |= words != before
        place = np.arange(size)
        newest = np.maximum.accumulate(np.where(altered, place, -1))
        since = np.where(newest >= begun, place - newest, self._since[node] + (place - begun) + 1)
        noted |= since < FOLLOWED
        ends = np.r_[begins[1:], size] - 1
        self._since[node[ends]] = np.minimum(since[ends], FOLLOWED)
        self._shown[node[ends]] = words[ends]
        if interval_us:
            previous_us = np.r_[np.zeros(1, np.int64), time_us[:-1]]
            previous_us[begins] = np.where(
                self._last_us[node[begins]] > _LONG_AGO, self._last_us[node[begins]], time_us[begins]
            )
            gap = time_us - previous_us > _GAP * interval_us
            noted |= gap
        # And the one before each: it tells since when a change may have been. The last one is before what is to come.
        noted[np.flatnonzero(noted & (place > begun)) - 1] = True
        noted[ends] = True
        return noted

    def _watched(self, pages: _PendingPages, looks: _NodePages) -> Iterator[Event]:
        where = np.flatnonzero(looks.noted)
        of_look = zip(where.tolist(), looks.node[where].tolist(), looks.time_us[where].tolist(), strict=True)
        for place, node, time_us in of_look:
            watch = self._watches.get(node)
            if watch is None:
                watch = self._watches[node] = DeviceWatch(ORIGIN)
            yield from watch.add(self._page(pages, looks.page[place], (node, time_us)), moment_of(time_us))

    def _page(self, pages: _PendingPages, of_stream: Ints, of: tuple[int, int]) -> list[Sample]:
        """All that is told of a node at a moment; what two tables tell of a device is one."""
        node, time_us = of
        found: dict[DevicePlace, dict[str, float]] = {}
        for page in of_stream[of_stream >= 0].tolist():
            for device, values in _rows(self._tables[int(pages.table[page])], int(pages.page[page])):
                if values:  # a row of blanks, of a table that is of several exporters, says nothing
                    found[device] = values | found[device] if device in found else values
        return [sample_of(device, time_us, self._names[node], values) for device, values in found.items()]

    def _remember(self, pages: _PendingPages, looks: _NodePages) -> None:
        """What the next pages follow on."""
        order = np.lexsort((pages.time_us, pages.node, pages.stream))
        node, stream = pages.node[order], pages.stream[order]
        last = order[np.r_[(node[1:] != node[:-1]) | (stream[1:] != stream[:-1]), True]]
        for number, state in enumerate(self._state):
            mine = last[pages.stream[last] == number]
            of_node = pages.node[mine]
            state.content[of_node], state.presence[of_node] = pages.content[mine], pages.presence[mine]
            state.last_us[of_node] = pages.time_us[mine]
        ends = np.r_[looks.node[1:] != looks.node[:-1], True]
        self._last_us[looks.node[ends]] = looks.time_us[ends]
        needed = {number for waiting in self._waiting for number in np.unique(waiting.table).tolist()}
        self._tables = {number: table for number, table in self._tables.items() if number in needed}


def _once(pages: _PendingPages) -> _PendingPages:
    """Pages in order of node, time and stream; of one that several files tell the first."""
    order = np.lexsort((pages.stream, pages.time_us, pages.node))
    sorted_pages = pages.only(order)
    return sorted_pages.only(group_starts(sorted_pages.node, sorted_pages.time_us, sorted_pages.stream))


def _words(shown: Flags) -> Sums:
    """What is shown at each look, as one number."""
    weights = np.random.default_rng(1).integers(1, 2**63, size=shown.shape[1], dtype=np.uint64)
    found: Sums = np.where(shown, weights, np.uint64(0)).sum(axis=1, dtype=np.uint64)
    return found


def _rows(table: PageTable, page: int) -> Iterator[tuple[DevicePlace, dict[str, float]]]:
    """Of each device of a page its values."""
    first, size = int(table.row[page]), int(table.rows[page])
    devices = table.device[first : first + size].tolist()
    for device, values in zip(devices, table.values[first : first + size].tolist(), strict=True):
        yield (
            table.devices[device],
            {name: value for name, value in zip(table.names, values, strict=True) if value == value},
        )

"""The pages of telemetry files, in order of time, through the watch that live sources have: what changed is an event.

    watch = PageWatch()
    watch.take(file)
    events = watch.events_until(next_file_begins_us)

Each node has a watch of its own. One look of it is all that is told of the node at one moment, by whichever files. Most
looks show what the one before showed, and tell a watch nothing: it is given those in which something changed, those
around a gap, the few before each, and all after it until the watch has settled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event, from_us
from store.records.telemetry import Sample
from store.telemetry.pages import DevicePlace, PageTable
from store.telemetry.rollups import group_starts
from store.telemetry.telemetry_file import TelemetryFile, sample_of

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Sums: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

# Looks that a watch is given before each that is news: by them it knows how often its devices report, and since when
# something can have changed.
BEFORE = 2
_LONG_AGO = -(2**62)
# Looks of a node that lie further apart than this many intervals have a gap between them: one that lacks is one. Around
# a gap a watch is given the looks by which it knows the pace.
_GAP = 1.5
ORIGIN = "telemetry"


@dataclass(slots=True)
class _Stream:
    """Tables of the same columns, one after the other; arrays have an entry a node, and grow."""

    interval_us: int = 0
    content: Sums = field(default_factory=lambda: np.zeros(0, np.uint64))
    last_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def grow(self, nodes: int) -> None:
        """Room for more nodes."""
        more = nodes - len(self.last_us)
        if more > 0:
            self.content = np.r_[self.content, np.zeros(more, np.uint64)]
            self.last_us = np.r_[self.last_us, np.full(more, _LONG_AGO)]


@dataclass(frozen=True, slots=True)
class _PendingPages:
    """Pages with where their rows are; `old` ones were looked at, of which `given` ones the watch knows."""

    node: Ints
    time_us: Ints
    stream: Ints
    content: Sums
    table: Ints
    page: Ints
    old: Flags
    given: Flags

    def only(self, kept: Flags | Ints) -> "_PendingPages":
        """Those that a mask or a list of positions keeps."""
        return _PendingPages(*(getattr(self, name)[kept] for name in self.__slots__))

    @classmethod
    def joined(cls, parts: Sequence["_PendingPages"]) -> "_PendingPages":
        """One after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class _NodePages:
    """Looks: all pages of a node at a moment, in order of node and time.

    `page` is of each look and stream the position of its page; -1: there is none. `look` is of each page its look.
    `begun` is of each look the first one of its node, `begins` are those first ones.
    """

    node: Ints
    time_us: Ints
    begins: Ints
    begun: Ints
    page: Ints
    look: Ints
    old: Flags
    given: Flags

    @classmethod
    def of(cls, pages: _PendingPages, streams: int) -> "_NodePages":
        """The looks of pages in order of node and time."""
        starts = group_starts(pages.node, pages.time_us)
        node = pages.node[starts]
        look = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(pages.node)]))
        begins = group_starts(node)
        begun = np.repeat(begins, np.diff(np.r_[begins, len(node)]))
        page = np.full((len(node), streams), -1, dtype=np.int64)
        page[look, pages.stream] = np.arange(len(pages.node))
        return cls(node, pages.time_us[starts], begins, begun, page, look, pages.old[starts], pages.given[starts])

    def before(self, looks: Ints, inclusive: bool) -> Flags:
        """The last looks of each stream before some looks."""
        found = np.zeros(len(self.node), bool)
        for number in range(self.page.shape[1]):
            own = np.flatnonzero(self.page[:, number] >= 0)
            at = np.searchsorted(own, looks, side="right" if inclusive else "left")
            for back in range(1, BEFORE + 1):
                there = at >= back
                place = own[at[there] - back]
                found[place[place >= self.begun[looks[there]]]] = True
        return found


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
    _before: list[_PendingPages] = field(default_factory=list)  # the last looks of each node
    _watches: dict[int, DeviceWatch] = field(default_factory=dict)
    _unsettled: set[int] = field(default_factory=set)
    # Of each node: its newest look, and which streams stood at it.
    _last_us: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _stood: Sums = field(default_factory=lambda: np.zeros(0, np.uint64))

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
                    table=np.full(size, self._next_table),
                    page=np.arange(size),
                    old=np.zeros(size, bool),
                    given=np.zeros(size, bool),
                )
            )
            self._next_table += 1
        more = len(self._names) - len(self._last_us)
        self._last_us = np.r_[self._last_us, np.full(more, _LONG_AGO)]
        self._stood = np.r_[self._stood, np.zeros(more, np.uint64)]
        for stream in self._state:
            stream.grow(len(self._names))

    def _node(self, name: str) -> int:
        number = self.nodes.setdefault(name, len(self.nodes))
        if number == len(self._names):
            self._names.append(name)
        return number

    def events_until(self, until_us: int | None) -> list[Event]:
        """The events of the pages before a moment (None: of all); no page before it may come after this."""
        if not self._waiting:
            return []
        waiting = _PendingPages.joined(self._waiting)
        now = np.ones(len(waiting.node), bool) if until_us is None else waiting.time_us < until_us
        if not now.any():
            return []
        self._waiting = [] if now.all() else [waiting.only(~now)]
        pages = _once(_PendingPages.joined([*self._before, waiting.only(now)]))
        looks = _NodePages.of(pages, len(self._state))
        noted = self._noted(pages, looks)
        given = looks.given.copy()
        events = list(self._watched(pages, looks, noted, given))
        self._remember(pages, looks, given)
        events.sort(key=lambda event: (0.0 if event.time is None else event.time.timestamp(), event.node or ""))
        return events

    def _changed(self, pages: _PendingPages) -> Flags:
        """Whether each page differs from the one before it of its stream and node."""
        changed = np.ones(len(pages.node), bool)
        order = np.lexsort((pages.time_us, pages.node, pages.stream))
        node, stream, sums = pages.node[order], pages.stream[order], pages.content[order]
        first = np.r_[True, (node[1:] != node[:-1]) | (stream[1:] != stream[:-1])]
        before, known = np.r_[np.zeros(1, np.uint64), sums[:-1]], np.ones(len(sums), bool)
        for number, state in enumerate(self._state):
            mine = first & (stream == number)
            before[mine] = state.content[node[mine]]
            known[mine] = state.last_us[node[mine]] > _LONG_AGO
        changed[order] = (sums != before) | ~known
        return changed & ~pages.old

    def _noted(self, pages: _PendingPages, looks: _NodePages) -> Flags:
        """The looks at which something changed, a table fell silent or speaks again, or that follow a gap; and some
        before each of them."""
        noted = np.zeros(len(looks.node), bool)
        noted[looks.look[self._changed(pages)]] = True
        stood = self._standing(looks)
        new = np.flatnonzero(~looks.old)
        first = np.r_[True, looks.node[new][1:] != looks.node[new][:-1]]
        before = np.where(first, self._stood[looks.node[new]], stood[np.maximum(new - 1, 0)])
        noted[new] |= stood[new] != before
        last_us = np.where(first, self._last_us[looks.node[new]], looks.time_us[np.maximum(new - 1, 0)])
        interval_us = min((state.interval_us for state in self._state if state.interval_us), default=0)
        gap = (last_us > _LONG_AGO) & (looks.time_us[new] - last_us > _GAP * interval_us)
        noted[new] |= gap & (interval_us > 0)
        ends = np.r_[looks.begins[1:], len(looks.node)] - 1
        self._stood[looks.node[ends]] = stood[ends]
        return noted | looks.before(np.flatnonzero(noted), inclusive=False)

    def _standing(self, looks: _NodePages) -> Sums:
        """Of each look, as one number, the streams that speak at it."""
        words = np.zeros(len(looks.node), np.uint64)
        weights = np.random.default_rng(1).integers(1, 2**63, size=len(self._state), dtype=np.uint64)
        for number in range(len(self._state)):
            words += np.where(looks.page[:, number] >= 0, weights[number], np.uint64(0))
        return words

    def _watched(self, pages: _PendingPages, looks: _NodePages, noted: Flags, given: Flags) -> Iterator[Event]:
        """The events of the noted looks, and of those after them until a watch has settled."""
        wanted = np.flatnonzero(noted & ~given)
        ends = np.r_[looks.begins[1:], len(looks.node)]
        busy = np.isin(looks.node[looks.begins], np.fromiter(self._unsettled, np.int64, len(self._unsettled)))
        busy |= np.searchsorted(wanted, ends) > np.searchsorted(wanted, looks.begins)
        for begin, end in zip(looks.begins[busy].tolist(), ends[busy].tolist(), strict=True):
            node = int(looks.node[begin])
            watch = self._watches.setdefault(node, DeviceWatch(ORIGIN))
            place = begin
            while place < end:
                if not (noted[place] or (node in self._unsettled and not looks.old[place])) or given[place]:
                    at = int(np.searchsorted(wanted, place + 1))
                    following = int(wanted[at]) if at < len(wanted) else end
                    place = place + 1 if node in self._unsettled else following
                    continue
                moment = from_us(int(looks.time_us[place]))
                page = self._page(pages, looks.page[place], (node, int(looks.time_us[place])))
                yield from watch.add(page, moment, is_page=False)
                given[place] = True
                (self._unsettled.discard if watch.is_settled() else self._unsettled.add)(node)
                place += 1

    def _page(self, pages: _PendingPages, of_stream: Ints, of: tuple[int, int]) -> list[Sample]:
        """All that is told of a node at a moment; what two tables tell of a device is one."""
        node, time_us = of
        found: dict[DevicePlace, dict[str, float]] = {}
        for page in of_stream[of_stream >= 0].tolist():
            for device, values in _rows(self._tables[int(pages.table[page])], int(pages.page[page])):
                if values:  # a row of blanks, of a table that is of several exporters, says nothing
                    found[device] = values | found[device] if device in found else values
        return [sample_of(device, time_us, self._names[node], values) for device, values in found.items()]

    def _remember(self, pages: _PendingPages, looks: _NodePages, given: Flags) -> None:
        """What the next pages follow on."""
        order = np.lexsort((pages.time_us, pages.node, pages.stream))
        node, stream = pages.node[order], pages.stream[order]
        last = order[np.r_[(node[1:] != node[:-1]) | (stream[1:] != stream[:-1]), True]]
        for number, state in enumerate(self._state):
            mine = last[pages.stream[last] == number]
            state.content[pages.node[mine]], state.last_us[pages.node[mine]] = pages.content[mine], pages.time_us[mine]
        ends = np.r_[looks.begins[1:], len(looks.node)] - 1
        self._last_us[looks.node[ends]] = looks.time_us[ends]
        kept = looks.before(ends, inclusive=True)[looks.look]
        seen = replace(pages, old=np.ones(len(pages.node), bool), given=given[looks.look])
        absent = [part.only(~np.isin(part.node, looks.node[looks.begins])) for part in self._before]
        self._before = [_PendingPages.joined([seen.only(kept), *absent])]
        needed = {int(one) for part in (*self._waiting, *self._before) for one in np.unique(part.table)}
        self._tables = {number: table for number, table in self._tables.items() if number in needed}


def _once(pages: _PendingPages) -> _PendingPages:
    """Pages in order of node, time and stream; of one that several files tell the first."""
    order = np.lexsort((pages.stream, pages.time_us, pages.node))
    sorted_pages = pages.only(order)
    return sorted_pages.only(group_starts(sorted_pages.node, sorted_pages.time_us, sorted_pages.stream))


def _rows(table: PageTable, page: int) -> Iterator[tuple[DevicePlace, dict[str, float]]]:
    """Of each device of a page its values."""
    first, size = int(table.row[page]), int(table.rows[page])
    devices = table.device[first : first + size].tolist()
    for device, values in zip(devices, table.values[first : first + size].tolist(), strict=True):
        yield (
            table.devices[device],
            {name: value for name, value in zip(table.names, values, strict=True) if value == value},
        )

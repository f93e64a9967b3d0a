"""What a subnet manager repeats: told once, then counted.

A duplicate GUID makes it write 370 records a second. The first is an event at once. Those of the next minute that say
the same of the same device are counted: one event at the minute's end (or when the source is quiet) bears their number
in `count` and the seconds they span in `span_s`, with the line and time of the first of them. So nothing is lost:
the events' counts, 1 where there is none, add up to the records.
"""

from dataclasses import replace
from datetime import datetime

from store.event import Event

WINDOW_S = 60.0
# Where times are unknown: what a duplicate GUID writes in a minute.
WINDOW_LINES = 60 * 370
# A manager that cannot reach anybody names every port: the oldest is told and forgotten.
MOST = 4096
KINDS = frozenset({"sm_error", "smp_timeout", "heavy_sweep"})

Key = tuple[object, ...]


class _Seen:
    """One thing that was told, and its repeats so far."""

    __slots__ = ("count", "event", "first", "last")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.first: Event | None = None
        self.last: Event = event
        self.count = 0


class Repeats:
    """Lets the first of equal events pass and counts the others of a minute. Bounded by MOST."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def admit(self, event: Event) -> list[Event]:
        """What is to be told now that an event has come."""
        if event.kind not in KINDS:
            return [event]
        key = _key(event)
        seen = self._seen.get(key)
        if seen is not None and _within(seen.event, event.time, event.line or 0):
            seen.first = seen.first or event
            seen.last = event
            seen.count += 1
            return []
        told = self._forget(key) if seen is not None else []
        if len(self._seen) >= MOST:
            told += self._forget(next(iter(self._seen)))
        self._seen[key] = _Seen(event)
        return [*told, event]

    def over(self, time: datetime | None, line: int) -> list[Event]:
        """The counts of those minutes that have ended, as of a line."""
        told: list[Event] = []
        while self._seen:
            key, seen = next(iter(self._seen.items()))
            if _within(seen.event, time, line):
                break
            told += self._forget(key)
        return told

    def flush(self) -> list[Event]:
        """The counts so far; their minutes go on."""
        return [event for seen in self._seen.values() for event in _counted(seen)]

    def _forget(self, key: Key) -> list[Event]:
        return _counted(self._seen.pop(key))


def _counted(seen: _Seen) -> list[Event]:
    """The event that stands for the repeats; none where there were none."""
    first, count = seen.first, seen.count
    seen.first, seen.count = None, 0
    if first is None:
        return []
    attributes = {**first.attributes, "count": count}
    if first.time is not None and seen.last.time is not None:
        attributes["span_s"] = round((seen.last.time - first.time).total_seconds(), 6)
    return [replace(first, attributes=attributes)]


def _key(event: Event) -> Key:
    """What makes two events say the same: not which attribute was asked for, nor the words around it."""
    told = event.attributes
    names = ("error", "function", "path", "lid", "status", "seen_at_1", "seen_at_2", "subnet_initialization_error")
    return (event.kind, event.node, event.device.key(), *(told.get(name) for name in names))


def _within(event: Event, time: datetime | None, line: int) -> bool:
    if event.time is None or time is None:
        return line - (event.line or 0) <= WINDOW_LINES
    return 0 <= (time - event.time).total_seconds() < WINDOW_S

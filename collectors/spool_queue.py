"""One of the spool's queues: its log, how far the server has taken it, and what of it is lost."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import orjson

from collectors.collector import Position
from collectors.losses import Losses, Queue
from collectors.segments import Cursor, SegmentLog
from collectors.spool_record import Record, decode, encode, is_fault

_NOTHING = Record(0.0, {}, ())


@dataclass(frozen=True, slots=True)
class Pending:
    """Items for one request (JSON text, as orjson takes it), and the place after them; there may be no items."""

    items: tuple[orjson.Fragment, ...]
    cursor: Cursor


class SpoolQueue:
    """Not safe for several threads: the spool locks."""

    def __init__(self, name: Queue, log: SegmentLog, place: Cursor, losses: Losses) -> None:
        """Go on from a saved place; segments that somebody took away since are counted as lost."""
        self.name: Queue = name
        self.log = log
        self._losses = losses
        if place > log.end:
            log.begin_after(place.segment)  # what was acknowledged is gone: its places mean nothing new
        elif not log.is_boundary(place):
            place = Cursor(place.segment, 0)
        losses.add(name, "missing", log.missing(place.segment or min(log.segments, default=0)))
        log.drop_before(place.segment)
        self.acknowledged = place
        self._lent = place  # the end of what was last given out
        self._judged = place  # the records before it were looked at for damage
        self._damage_told = 0
        self._compacted = 0  # segments up to this number hold nothing but faults

    def backlog_bytes(self) -> int:
        """How many bytes wait for the server."""
        begun = self.acknowledged.offset if self.acknowledged.segment in self.log.segments else 0
        return max(0, self.log.size_bytes - begun)

    def oldest_at(self) -> float | None:
        """When the oldest thing that waits was written (Unix time)."""
        for payload, _end in self._waiting():
            record = None if payload is None else decode(payload)
            if record is not None and record.items:
                return record.at
        return None

    def pending(self, max_items: int, max_bytes: int) -> Pending:
        """The oldest items that wait: at least one record, up to about these limits."""
        items: list[bytes] = []
        size = 0
        cursor = self.acknowledged
        for record, end in self._records(self._waiting()):
            length = sum(map(len, record.items))
            if items and (len(items) + len(record.items) > max_items or size + length > max_bytes):
                break
            items += record.items
            size += length
            cursor = end
        self._lent = cursor
        self.note_damage()
        return Pending(tuple(map(orjson.Fragment, items)), cursor)

    def acknowledge(self, place: Cursor) -> None:
        """Delete what is before a place. The newest segment of events holds every position: older ones may go."""
        self.acknowledged = place
        self.log.drop_before(place.segment)

    def free(self) -> bool:
        """Where nothing waits, delete the newest segment too, though it is not full; False where nothing came free.

        Raises:
            OSError: there is no room for the record that must be kept of it.
        """
        if self.backlog_bytes() or not self.log.begin_next():
            return False
        self.acknowledge(max(self.log.end, Cursor(self.acknowledged.segment + 1, 0)))
        return True

    def give_up_oldest(self) -> Cursor | None:
        """Delete the oldest segment, sent or not; returns the place to go on from."""
        oldest = self.log.segments[0]
        begin = self.acknowledged.offset if self.acknowledged.segment == oldest else 0
        unsent = sum(len(record.items) for record, _end in self._records(self.log.read_segment(oldest, begin)))
        after = self.log.drop_oldest()
        self._losses.add(self.name, "full", unsent)
        return after

    def give_up_infos(self) -> Iterator[None]:
        """Take what is no fault out of the segments, oldest first, one a step; the newest and the lent are left alone.

        Raises:
            OSError: the disk is full or broken.
        """
        for number in self.log.segments[:-1]:
            if number > max(self._lent.segment, self._compacted):
                self._losses.add(self.name, "full", self._without_infos(number))
                self._compacted = number
                yield

    def note_damage(self) -> None:
        """Count what reading has found unreadable since the last time."""
        self._losses.add(self.name, "damaged", self.log.damaged_bytes - self._damage_told)
        self._damage_told = self.log.damaged_bytes

    def _waiting(self) -> Iterable[tuple[bytes | None, Cursor]]:
        """What was not acknowledged; where that is nothing, as nearly always, no file is opened to see it."""
        return self.log.read(self.acknowledged) if self.log.end > self.acknowledged else ()

    def _without_infos(self, number: int) -> int:
        records = [record for record, _end in self._records(self.log.read_segment(number))]
        faults = [tuple(filter(is_fault, record.items)) for record in records]
        payloads: Sequence[bytes] = [
            encode(record.at, record.positions, kept)
            for record, kept in zip(records, faults, strict=True)
            if kept or record.positions
        ]
        self.log.replace(number, payloads)
        return sum(len(record.items) for record in records) - sum(map(len, faults))

    def _records(self, entries: Iterable[tuple[bytes | None, Cursor]]) -> Iterator[tuple[Record, Cursor]]:
        """What payloads say; one that says nothing in spite of its checksum is empty, and counted once."""
        for payload, end in entries:
            record = None if payload is None else decode(payload)
            if payload is not None and end > self._judged:
                self._judged = end
                self._losses.add(self.name, "damaged", len(payload) if record is None else record.damaged_bytes)
            yield record or _NOTHING, end


def newest_positions(log: SegmentLog) -> dict[str, Position]:
    """From the newest segment, which begins with every position; where that beginning is bad, from older ones too."""
    positions: dict[str, Position] = {}
    for number in reversed(log.segments):
        found: dict[str, Position] = {}
        whole = False
        for place, (payload, _end) in enumerate(log.read_segment(number, count=False)):
            record = None if payload is None else decode(payload)
            found.update({} if record is None else record.positions)
            whole = whole or (place == 0 and record is not None)
        positions = {**found, **positions}
        if whole:
            break
    return positions

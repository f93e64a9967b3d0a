"""One of the spool's queues: its log, how far the server has taken it, and what of it is lost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import orjson

from collectors.spool.segments import SegmentCursor, SegmentLog
from store.records.event import format_time
from store.records.telemetry import Rollup

if TYPE_CHECKING:
    from collectors.collector import Position
    from collectors.spool.state import Queue, SpoolLosses

# A roll-up as the JSON object that `POST /api/v1/telemetry` takes: its fields, the hour in RFC 3339.

_NAMES = tuple(f.name for f in fields(Rollup))


def rollup_to_wire(rollup: Rollup) -> dict[str, Any]:
    """Every field by its name; unknown is null."""
    wire: dict[str, Any] = {name: getattr(rollup, name) for name in _NAMES}
    wire["time"] = format_time(rollup.time)
    return wire


# One record of the spool: a line that says when and how far, then one item a line.
#
#     {"at": 1740801906.789, "positions": {"kmsg": {...}}}
#     {"time": "2025-03-01T04:05:06.789000Z", "kind": "xid", ...}
#
# Items stay bytes: what is shipped is never taken apart and put together again, so that a backlog costs no memory.

# One record holds no more than this, so that a batch can be filled well.
_MOST_ITEMS = 250
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """What a payload says: when it was written (Unix time), positions, and the items as JSON text."""

    at: float
    positions: Mapping[str, Any]
    items: tuple[bytes, ...]
    damaged_bytes: int = 0  # of items that are no JSON though the checksum fits


def encode(at: float, positions: Mapping[str, Any], items: Sequence[bytes] = ()) -> bytes:
    """The payload of a record."""
    return b"\n".join((orjson.dumps({"at": at, "positions": positions}), *items))


def decode(payload: bytes) -> SpoolRecord | None:
    """The record of a payload; None where it makes no sense."""
    head, *lines = payload.split(b"\n")
    found = _loads(head)
    if found is None or not isinstance(found.get("positions", {}), dict):
        return None
    if isinstance(found.get("events"), list):  # as they were written before items had lines of their own
        lines = [orjson.dumps(item) for item in found["events"]]
    good = tuple(line for line in lines if _loads(line) is not None)
    damaged = sum(map(len, lines)) - sum(map(len, good))
    at = found.get("at")
    return SpoolRecord(at if isinstance(at, float | int) else 0.0, found.get("positions", {}), good, damaged)


def parts(items: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Items in groups that one record holds each."""
    part: list[bytes] = []
    size = 0
    for item in items:
        if part and (len(part) >= _MOST_ITEMS or size + len(item) > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item)
    if part:
        yield part


def payloads_of(at: float, positions: Mapping[str, Any], items: Sequence[bytes]) -> list[bytes]:
    """Items as records; the positions stand in the last one, so that they count when all of the items are there."""
    groups = list(parts(items))
    return [encode(at, positions if group is groups[-1] else {}, group) for group in groups]


def is_fault(item: bytes) -> bool:
    """Whether an event is more than information."""
    found = _loads(item)
    return found is not None and found.get("severity") != "info"


def _loads(line: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


_NOTHING = SpoolRecord(0.0, {}, ())


@dataclass(frozen=True, slots=True)
class Pending:
    """Items for one request (JSON text, as orjson takes it), and the place after them; there may be no items."""

    items: tuple[orjson.Fragment, ...]
    cursor: SegmentCursor


class SpoolQueue:
    """Not safe for several threads: the spool locks."""

    def __init__(self, name: "Queue", log: SegmentLog, place: SegmentCursor, losses: "SpoolLosses") -> None:
        """Go on from a saved place; segments that somebody took away since are counted as lost."""
        self.name: Queue = name
        self.log = log
        self._losses = losses
        if place > log.end:
            log.begin_after(place.segment)  # what was acknowledged is gone: its places mean nothing new
        elif not log.is_boundary(place):
            place = SegmentCursor(place.segment, 0)
        losses.add(name, "missing", log.missing(place.segment or min(log.segments, default=0)))
        log.drop_before(place.segment)
        self.acknowledged = place
        self._lent = place  # the end of what was last given out
        self._judged = place  # the records before it were looked at for damage
        self._damage_reported = 0
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

    def acknowledge(self, place: SegmentCursor) -> None:
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
        self.acknowledge(max(self.log.end, SegmentCursor(self.acknowledged.segment + 1, 0)))
        return True

    def give_up_oldest(self) -> SegmentCursor | None:
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
        self._losses.add(self.name, "damaged", self.log.damaged_bytes - self._damage_reported)
        self._damage_reported = self.log.damaged_bytes

    def _waiting(self) -> Iterable[tuple[bytes | None, SegmentCursor]]:
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

    def _records(
        self, entries: Iterable[tuple[bytes | None, SegmentCursor]]
    ) -> Iterator[tuple[SpoolRecord, SegmentCursor]]:
        """What payloads say; one that says nothing in spite of its checksum is empty, and counted once."""
        for payload, end in entries:
            record = None if payload is None else decode(payload)
            if payload is not None and end > self._judged:
                self._judged = end
                self._losses.add(self.name, "damaged", len(payload) if record is None else record.damaged_bytes)
            yield record or _NOTHING, end


def newest_positions(log: SegmentLog) -> "dict[str, Position]":
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

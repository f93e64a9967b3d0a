"""What was seen and not yet accepted by the server, on disk; and how far each source was read.

Events and the position after them are one record, so that they are saved together or not at all. Events are never
dropped: a full spool stops the sources (a file waits; what the kernel's ring loses meanwhile is counted). Roll-ups
make room first, oldest first, and are counted.
"""

import fcntl
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import orjson

from collectors.collector import Collected, Position
from collectors.rollup_wire import rollup_to_wire
from collectors.segments import Cursor, SegmentLog, write_atomically
from store.event import to_wire

Queue: TypeAlias = Literal["events", "telemetry"]
QUEUES: tuple[Queue, ...] = ("events", "telemetry")

# One record holds no more than this, so that a batch can be filled well.
_RECORD_EVENTS = 250
_RECORD_BYTES = 256 * 1024


class SpoolFullError(Exception):
    """No room until the server has taken something."""


class SpoolBusyError(Exception):
    """Another sidecar uses this folder."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Items for one request, and the place after them; nothing pending has no items and a cursor all the same."""

    items: tuple[Any, ...]
    cursor: Cursor


class Spool:
    """The sidecar's only memory. Safe for several threads."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open or create the folder.

        Raises:
            SpoolBusyError: another process has it open.
            OSError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = _lock(folder / "lock")
        self._lock = threading.Lock()
        self._max_bytes = max_bytes
        self._positions: dict[str, Position] = {}
        self._unsaved: set[str] = set()
        segment_bytes = min(4 * 1024 * 1024, max(4096, max_bytes // 16))
        self._logs: dict[Queue, SegmentLog] = {
            "events": SegmentLog(folder / "events", segment_bytes, self._snapshot),
            "telemetry": SegmentLog(folder / "telemetry", segment_bytes, lambda: None),
        }
        self._acknowledged_file = folder / "acknowledged.json"
        self._acknowledged = self._read_acknowledged()
        self._read_positions()
        self.news = threading.Event()  # set whenever something was appended
        self.dropped_rollups = 0

    def position(self, spec: str) -> Position | None:
        """How far a source was read, as its collector said."""
        with self._lock:
            return self._positions.get(spec)

    def append(self, spec: str, collected: Collected) -> None:
        """Save what a turn gave, durable on return. A position without news is only noted: see `save_positions`.

        Raises:
            SpoolFullError: the events have no room; nothing was saved.
            OSError: the disk is full or broken; nothing was saved.
        """
        with self._lock:
            if collected.rollups:
                self._append_rollups([rollup_to_wire(rollup) for rollup in collected.rollups])
            if collected.events:
                parts = list(_parts([to_wire(event) for event in collected.events]))
                last = {spec: collected.position} if collected.position is not None else {}
                records = [{"positions": {}, "events": part} for part in parts]
                records[-1]["positions"] = last
                payloads = [orjson.dumps(record) for record in records]
                self._make_room(sum(map(len, payloads)))
                self._logs["events"].append(payloads)
                self._unsaved.discard(spec)
            elif collected.position is not None and collected.position != self._positions.get(spec):
                self._unsaved.add(spec)
            if collected.position is not None:
                self._positions[spec] = collected.position
        if collected.events or collected.rollups:
            self.news.set()

    def save_positions(self) -> None:
        """Make the positions durable that came without events. Losing one costs a second look, nothing else.

        Raises:
            OSError: the disk is full or broken.
        """
        with self._lock:
            if self._unsaved:
                record = {"positions": {spec: self._positions[spec] for spec in sorted(self._unsaved)}, "events": []}
                self._logs["events"].append([orjson.dumps(record)])
                self._unsaved.clear()

    def pending(self, queue: Queue, max_items: int, max_bytes: int) -> Pending:
        """The oldest items that the server has not acknowledged: at least one record, up to about these limits."""
        with self._lock:
            items: list[Any] = []
            size = 0
            cursor = self._acknowledged[queue]
            for payload, end in self._logs[queue].read(cursor):
                found = orjson.loads(payload)["events"]
                if items and (len(items) + len(found) > max_items or size + len(payload) > max_bytes):
                    break
                items += found
                size += len(payload)
                cursor = end
            return Pending(tuple(items), cursor)

    def acknowledge(self, queue: Queue, cursor: Cursor) -> None:
        """The server has everything up to a place: it need not be kept."""
        with self._lock:
            if cursor > self._acknowledged[queue]:
                self._acknowledge(queue, cursor)

    def backlog_bytes(self, queue: Queue) -> int:
        """How many bytes wait for the server."""
        with self._lock:
            return self._backlog(queue)

    def damage_bytes(self) -> int:
        """Bytes that a crash or the disk made unreadable since this spool was opened."""
        with self._lock:
            return sum(log.torn_bytes + log.corrupt_bytes for log in self._logs.values())

    def close(self) -> None:
        """Save the positions and let another process have the folder."""
        try:
            self.save_positions()
        finally:
            self._lock_file.close()

    def _backlog(self, queue: Queue) -> int:
        log, cursor = self._logs[queue], self._acknowledged[queue]
        return log.size_bytes - (cursor.offset if cursor.segment in log.segments else 0)

    def _acknowledge(self, queue: Queue, cursor: Cursor) -> None:
        self._acknowledged[queue] = cursor
        places = {name: [place.segment, place.offset] for name, place in self._acknowledged.items()}
        write_atomically(self._acknowledged_file, orjson.dumps(places))
        # The newest segment of events holds every position: the older ones may go.
        self._logs[queue].drop_before(cursor.segment)

    def _append_rollups(self, rollups: Sequence[Mapping[str, Any]]) -> None:
        payload = orjson.dumps({"events": rollups})
        try:
            self._make_room(len(payload))
        except SpoolFullError:
            self.dropped_rollups += len(rollups)
            return
        self._logs["telemetry"].append([payload])

    def _make_room(self, size: int) -> None:
        # An empty spool takes a batch of any size: one larger than the limit must not wait for ever.
        while (used := sum(map(self._backlog, QUEUES))) and used + size > self._max_bytes:
            telemetry = self._logs["telemetry"]
            if self._backlog("telemetry") == 0:
                raise SpoolFullError(f"the spool holds its {self._max_bytes} bytes: the server must take some first")
            oldest = telemetry.segments[0]
            unsent = telemetry.read(max(self._acknowledged["telemetry"], Cursor(oldest, 0)))
            self.dropped_rollups += sum(
                len(orjson.loads(payload)["events"]) for payload, end in unsent if end.segment == oldest
            )
            after = telemetry.drop_oldest()
            if after is not None and after > self._acknowledged["telemetry"]:
                self._acknowledge("telemetry", after)

    def _snapshot(self) -> bytes | None:
        """The first record of each segment: every position, so that older segments may go."""
        return orjson.dumps({"positions": self._positions, "events": []}) if self._positions else None

    def _read_positions(self) -> None:
        log = self._logs["events"]
        # The newest segment begins with every position; it may be empty after a crash, then the one before has them.
        for number in log.segments[-2:-1] + log.segments[-1:]:
            for payload, end in log.read(Cursor(number, 0)):
                if end.segment == number:
                    self._positions.update(orjson.loads(payload)["positions"])

    def _read_acknowledged(self) -> dict[Queue, Cursor]:
        try:
            places = orjson.loads(self._acknowledged_file.read_bytes())
            found = {queue: Cursor(*places[queue]) for queue in QUEUES}
        except (OSError, ValueError, KeyError, TypeError):
            return dict.fromkeys(QUEUES, Cursor())  # sending again what is known changes nothing
        # A place beyond the log means that the log was taken away or cut: begin at what there is.
        return {queue: place if place <= self._logs[queue].end else Cursor() for queue, place in found.items()}


def _parts(events: Sequence[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    size = 0
    for event in events:
        length = len(event["message"])
        if part and (len(part) >= _RECORD_EVENTS or size + length > _RECORD_BYTES):
            yield part
            part, size = [], 0
        part.append(event)
        size += length
    yield part


def _lock(path: Path) -> IO[bytes]:
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise SpoolBusyError(f"{path.parent} is in use by another sidecar: give each its own --spool") from error
    return file

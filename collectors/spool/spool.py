"""The spool: events and roll-ups on disk until the server accepts them, and how far each source was read.

Events and the position after them are one record, so that they are saved together or not at all. A full spool gives up
the oldest roll-ups; then sources wait, for a file keeps what was not read. The kernel's ring does not: for it, events
of severity `info` are given up, oldest first; faults never. Whatever is given up or found damaged is counted, and an
event `spool_loss` of its own.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from collectors.collector import CollectorTurn, Position
from collectors.spool.queue import Pending, SpoolQueue, encode, is_fault, newest_positions, payloads_of, rollup_to_wire
from collectors.spool.segments import SegmentCursor, SegmentLog
from collectors.spool.state import (
    QUEUES,
    Queue,
    Reason,
    Reserve,
    SpoolFullError,
    SpoolLosses,
    SpoolState,
    lock,
    read_state,
)
from store.records.event import Event, to_wire

_LOG = logging.getLogger("foreshock.sidecar")
_CANNOT_WAIT = frozenset({"kmsg"})  # what these read is overwritten while it waits
_TICK_S = 1.0  # how often `keep_up` comes where appends are synced later
_LOSS_BYTES = 1000  # an event that tells a loss has no more


class Spool:
    """The sidecar's only memory. Safe for several threads."""

    def __init__(self, folder: Path, max_bytes: int, node: str = "", fsync_interval_s: float = 0.0) -> None:
        """Open or create the folder. `fsync_interval_s` 0: durable on return; else at most so much later.

        Raises:
            SpoolBusyError: another process has it open.
            OSError: it cannot be written.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_file = lock(folder / "lock")
        self._lock = threading.RLock()
        self._node = node
        self.max_bytes = max_bytes
        self.fsync_interval_s = fsync_interval_s
        self._synced_at = time.monotonic()
        self._unsaved: set[str] = set()
        self._state_file = folder / "acknowledged.json"
        self._state_saved = True
        state = read_state(self._state_file)
        self._losses = SpoolLosses(map(asdict, state.lost))
        segment_bytes = min(4 * 1024 * 1024, max(4096, max_bytes // 16))
        logs = {
            "events": SegmentLog(folder / "events", segment_bytes, self._snapshot),
            "telemetry": SegmentLog(folder / "telemetry", segment_bytes, lambda: None),
        }
        self._reserve = Reserve(folder / "reserve")
        self._queues = {queue: SpoolQueue(queue, logs[queue], state.places[queue], self._losses) for queue in QUEUES}
        self._positions = newest_positions(logs["events"])
        self._acknowledge("events", self._queues["events"].acknowledged)  # its file: before the disk is full
        self._take_reserve()
        self.news = threading.Event()  # set whenever something was appended

    def position(self, spec: str) -> Position | None:
        """How far a source was read, as its collector said."""
        with self._lock:
            return self._positions.get(spec)

    def append(self, spec: str, collected: CollectorTurn) -> None:
        """Save what a turn gave. A position without news is only noted, unless it is a source's first.

        Raises:
            SpoolFullError: the events have no room; nothing was saved.
            OSError: the disk is full or broken; nothing was saved.
        """
        with self._lock:
            kept: Sequence[bytes] = ()
            if collected.events or collected.rollups:  # most turns of most sources have none
                lines = [orjson.dumps(to_wire(event)) for event in collected.events]
                kept = self._fitting(spec, lines)
                self._write(spec, collected, kept)
                self._losses.add("events", "full", len(lines) - len(kept))
            if collected.position is not None:
                before = self._positions.get(spec)
                if not kept and collected.position != before:
                    self._unsaved.add(spec)
                self._positions[spec] = collected.position
                if before is None and spec in self._unsaved:
                    with suppress(OSError):  # it stays noted: the next `save_positions` says what is wrong
                        self.save_positions()
        if kept or collected.rollups:
            self.news.set()

    def keep_up(self) -> None:
        """What need not wait for an append: syncing, losses to tell. Call it each second where appends are not synced.

        Raises:
            SpoolFullError: a loss has no room to be reported yet.
            OSError: the disk is full or broken.
        """
        with self._lock:
            self._note_damage()
            if time.monotonic() - self._synced_at > self.fsync_interval_s - _TICK_S:
                self._sync()
            if not self._state_saved:
                self._save_state()
            if losses := self._losses.due(self._node):
                self._make_room(_LOSS_BYTES * len(losses))
                self._append_events([], {}, losses)
        if losses:
            self.news.set()

    def save_positions(self) -> None:
        """Make the positions durable that came without events.

        Losing one costs a second look. Losing the first of a source may cost what a rotated file held: it would be
        taken for one from before the first start.

        Raises:
            OSError: the disk is full or broken.
        """
        with self._lock:
            if self._unsaved:
                queue = self._queues["events"]
                idle = queue.acknowledged == queue.log.end
                moved = {spec: self._positions[spec] for spec in self._unsaved}
                self._append("events", [encode(time.time(), moved)], sync=True)
                self._unsaved.clear()
                if idle:  # this record is nothing to send, nor is it after a restart
                    self._acknowledge("events", queue.log.end, save=False)

    def pending(self, queue: Queue, max_items: int, max_bytes: int) -> Pending:
        """The oldest items that the server has not acknowledged: at least one record, up to about these limits.

        Raises:
            OSError: the disk is broken: nothing leaves before it is durable here.
        """
        with self._lock:
            self._queues[queue].log.sync()
            return self._queues[queue].pending(max_items, max_bytes)

    def acknowledge(self, queue: Queue, cursor: SegmentCursor) -> None:
        """The server has everything up to a place: it need not be kept."""
        with self._lock:
            if cursor > self._queues[queue].acknowledged:
                self._acknowledge(queue, cursor)

    def backlog_bytes(self, queue: Queue) -> int:
        """How many bytes wait for the server."""
        with self._lock:
            return self._queues[queue].backlog_bytes()

    def oldest_s(self) -> float:
        """How long the oldest thing waits for the server, by the wall clock; 0 where nothing waits."""
        with self._lock:
            moments = [moment for queue in self._queues.values() if (moment := queue.oldest_at()) is not None]
        return max(0.0, time.time() - min(moments)) if moments else 0.0

    def lost(self) -> Counter[tuple[Queue, Reason]]:
        """What was given up, unreadable or gone since this spool was opened: items, bytes, segments."""
        with self._lock:
            self._note_damage()
            return Counter(self._losses.totals)

    def damage_bytes(self) -> int:
        """Bytes that a crash or the disk made unreadable since this spool was opened, torn tails among them."""
        with self._lock:
            self._note_damage()
            torn = sum(queue.log.torn_bytes for queue in self._queues.values())
            return torn + sum(self._losses.totals[queue, "damaged"] for queue in QUEUES)

    def close(self) -> None:
        """Save the positions and let another process have the folder."""
        try:
            self.save_positions()
            with self._lock:
                self._sync()
                if not self._state_saved:
                    self._save_state()
        except OSError as error:
            _LOG.error("the spool cannot be written: %s; what was sent last is sent again at the next start", error)
        finally:
            for queue in self._queues.values():
                queue.log.close()
            self._lock_file.close()

    def _fitting(self, spec: str, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Those of a turn's events that there is room for: all, or for what cannot wait the faults at least."""
        if not lines:
            return lines
        try:
            self._make_room(sum(map(len, lines)))
        except SpoolFullError:
            if spec.partition(":")[0] not in _CANNOT_WAIT:
                raise
        else:
            return lines
        for _step in self._queues["events"].give_up_infos():
            self._state_saved = False
            if self._used() + sum(map(len, lines)) <= self.max_bytes:
                return lines
        faults = [line for line in lines if is_fault(line)]
        if faults:
            self._make_room(sum(map(len, faults)))
        return faults

    def _write(self, spec: str, collected: CollectorTurn, lines: Sequence[bytes]) -> None:
        telemetry = self._queues["telemetry"].log
        before = telemetry.end
        if collected.rollups:
            self._append_rollups([orjson.dumps(rollup_to_wire(rollup)) for rollup in collected.rollups])
        if lines:
            positions = {spec: collected.position} if collected.position is not None else {}
            try:
                self._append_events(lines, positions, self._losses.due(self._node))
            except OSError:
                telemetry.undo(before)  # the turn is tried again as a whole
                raise
            self._unsaved.discard(spec)

    def _append_events(self, lines: Sequence[bytes], positions: Mapping[str, Any], losses: Sequence[Event]) -> None:
        reports = [orjson.dumps(to_wire(event)) for event in losses]
        self._append("events", payloads_of(time.time(), positions, [*lines, *reports]), not self.fsync_interval_s)
        self._losses.reported(losses)
        self._state_saved = self._state_saved and not losses

    def _append_rollups(self, lines: Sequence[bytes]) -> None:
        try:
            self._make_room(sum(map(len, lines)))
        except SpoolFullError:
            self._losses.add("telemetry", "full", len(lines))
            self._state_saved = False
            return
        self._append("telemetry", payloads_of(time.time(), {}, lines), not self.fsync_interval_s)

    def _append(self, queue: Queue, payloads: Sequence[bytes], sync: bool) -> None:
        try:
            self._queues[queue].log.append(payloads, sync)
        except OSError:
            if not self._free():
                raise
            self._queues[queue].log.append(payloads, sync)

    def _free(self) -> bool:
        """Make room on the disk: delete what the server has, though it be in segments that are still written to."""
        freed = False
        for queue in self._queues.values():
            with suppress(OSError):
                freed = self._reserve.spend(queue.free) or freed
        if freed:
            self._acknowledge("events", self._queues["events"].acknowledged)
            self._take_reserve()
        return freed

    def _take_reserve(self) -> None:
        self._reserve.take(2 * len(self._snapshot() or b""))

    def _make_room(self, size: int) -> None:
        # An empty spool takes a batch of any size: one larger than the limit must not wait for ever.
        telemetry = self._queues["telemetry"]
        while (used := self._used()) and used + size > self.max_bytes:
            if telemetry.backlog_bytes() == 0:
                raise SpoolFullError(f"the spool holds its {self.max_bytes} bytes: the server must take some first")
            after = telemetry.give_up_oldest()
            if after is not None:
                self._acknowledge("telemetry", after)

    def _used(self) -> int:
        return sum(queue.backlog_bytes() for queue in self._queues.values())

    def _note_damage(self) -> None:
        for queue in self._queues.values():
            queue.note_damage()

    def _acknowledge(self, queue: Queue, cursor: SegmentCursor, save: bool = True) -> None:
        """Never fails: on a full disk it is deleting what the server has that makes room."""
        goes = cursor.segment != self._queues[queue].acknowledged.segment
        self._queues[queue].acknowledged = cursor
        with suppress(OSError):
            if save or goes:  # unsaved, what was sent last is sent again: that changes nothing
                self._save_state(sync=goes)
        if goes:
            with suppress(OSError):
                self._queues[queue].acknowledge(cursor)
            self._take_reserve()

    def _save_state(self, sync: bool = True) -> None:
        self._state_saved = False
        state = SpoolState({queue: self._queues[queue].acknowledged for queue in QUEUES}, self._losses.open_losses())
        self._reserve.spend(lambda: state.write(self._state_file, sync))
        self._state_saved = True

    def _sync(self) -> None:
        self._synced_at = time.monotonic()
        for queue in self._queues.values():
            queue.log.sync()

    def _snapshot(self) -> bytes | None:
        """The first record of each segment: every position, so that older segments may go."""
        return encode(time.time(), self._positions) if self._positions else None

"""`acknowledged.json`: how far the server acknowledged each queue, and losses not reported yet; with a checksum.

    {"events": [3, 1200], "telemetry": [1, 0], "lost": [], "check": 3735928559}

A flipped digit would make unsent events look sent: a file whose checksum does not fit says nothing.
"""

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, TypeVar
from zlib import crc32

import orjson

from collectors.spool.segments import SegmentCursor, write_atomically
from store.records.event import Event, format_time, with_id

# Losses are counted and reported as events `spool_loss`, which are durable too. A loss stays open until its event is
# in the spool. A repeat within a minute is added to the next event.

Queue: TypeAlias = Literal["events", "telemetry"]
Reason: TypeAlias = Literal["full", "damaged", "missing"]
_AGAIN_S = 60.0
_UNITS: Mapping[tuple[str, str], str] = {
    ("events", "full"): "events of severity info were given up for room",
    ("telemetry", "full"): "roll-ups were given up for room",
    ("events", "damaged"): "bytes of events were unreadable",
    ("telemetry", "damaged"): "bytes of telemetry were unreadable",
    ("events", "missing"): "segments of events were gone from the disk",
    ("telemetry", "missing"): "segments of telemetry were gone from the disk",
}


@dataclass(slots=True)
class SpoolLoss:
    """One kind of loss that no event has reported yet; `count` is of items, bytes (damaged) or segments (missing)."""

    queue: Queue
    reason: Reason
    count: int
    first: str
    last: str


class SpoolLosses:
    """Every loss of one spool. Not safe for several threads: the spool locks."""

    def __init__(self, kept: Iterable[Mapping[str, Any]] = ()) -> None:
        """`kept` is what `open_losses` gave before a restart."""
        self._open: dict[tuple[Queue, Reason], SpoolLoss] = {}
        self._reported_at: dict[tuple[Queue, Reason], float] = {}  # monotonic
        self.totals: Counter[tuple[Queue, Reason]] = Counter()  # since this process began
        for entry in kept:
            loss = SpoolLoss(**entry)
            self._open[loss.queue, loss.reason] = loss

    def add(self, queue: Queue, reason: Reason, count: int) -> None:
        """Something is lost, now."""
        if count <= 0:
            return
        self.totals[queue, reason] += count
        now = format_time(datetime.now(UTC))
        loss = self._open.setdefault((queue, reason), SpoolLoss(queue, reason, 0, now, now))
        loss.count += count
        loss.last = now

    def open_losses(self) -> list[SpoolLoss]:
        """Those that no event has reported yet."""
        return [self._open[key] for key in sorted(self._open)]

    def due(self, node: str) -> list[Event]:
        """The events to save now: of each open loss, unless one of its kind was reported within a minute."""
        now = time.monotonic()
        return [
            loss_event(node, loss)
            for key, loss in sorted(self._open.items())
            if now - self._reported_at.get(key, -_AGAIN_S) >= _AGAIN_S
        ]

    def reported(self, events: Iterable[Event]) -> None:
        """Those of `due` are in the spool."""
        for event in events:
            key = next(key for key in self._open if key == (event.attributes["queue"], event.attributes["reason"]))
            self._reported_at[key] = time.monotonic()
            del self._open[key]


def loss_event(node: str, loss: SpoolLoss) -> Event:
    """The sidecar itself lost something; the same loss is the same event, so that telling it twice changes nothing."""
    event = Event(
        time=datetime.fromisoformat(loss.last),
        node=node,
        source="sidecar",
        kind="spool_loss",
        severity="warning",
        cause="host",
        action="none",
        message=f"The sidecar's spool: {loss.count} {_UNITS[loss.queue, loss.reason]}.",
        attributes={
            "count": loss.count,
            "reason": loss.reason,
            "queue": loss.queue,
            "first": loss.first,
            "last": loss.last,
        },
    )
    return with_id(event)


# A file that is given up on a full disk: freeing space takes a little of it, or a name of a file, first.

T = TypeVar("T")

_RESERVE_BYTES = 64 * 1024
_BLOCK = 4096


class Reserve:
    """Best effort: where the disk was full from the beginning there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = _RESERVE_BYTES

    def take(self, least_bytes: int = 0) -> None:
        """Have at least so much in reserve from now on; less where there is not so much room."""
        self._size = max(self._size, least_bytes)
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(descriptor, self._size)
            finally:
                os.close(descriptor)

    def spend(self, write: Callable[[], T]) -> T:
        """Do what writes a little; where that finds no room, give up the reserve for it.

        Raises:
            OSError: there is no room even so.
        """
        try:
            return write()
        except OSError:
            self._path.unlink(missing_ok=True)
        try:
            return write()
        finally:
            self.take()


def _allocate(descriptor: int, size: int) -> None:
    for less in range(size, 0, -max(_BLOCK, size // 16)):
        with suppress(OSError):
            os.posix_fallocate(descriptor, 0, less)
            break


# So that its size stays the same, and it can be written over.
_STATE_BYTES = 512
QUEUES: tuple[Queue, ...] = ("events", "telemetry")


class SpoolBusyError(Exception):
    """Another sidecar uses this folder."""


class SpoolFullError(Exception):
    """No room until the server has taken something."""


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What is saved beside the queues."""

    places: Mapping[Queue, SegmentCursor]
    lost: Sequence[SpoolLoss]

    def write(self, path: Path, sync: bool) -> None:
        """Write the file; with `sync`, or where it reports losses, wait until the disk has it.

        Raises:
            OSError: the disk is full or broken; the old file stays, or is one whose checksum does not fit.
        """
        said: dict[str, Any] = {queue: [place.segment, place.offset] for queue, place in self.places.items()}
        said["lost"] = [asdict(loss) for loss in self.lost]
        said["check"] = _check(said)
        data = orjson.dumps(said).ljust(_STATE_BYTES)
        if sync or self.lost or not _overwrite(path, data):
            write_atomically(path, data)


def read_state(path: Path) -> SpoolState:
    """What was saved; nothing where the file is missing or damaged: sending again what is known changes nothing."""
    try:
        said = orjson.loads(path.read_bytes())
        _verify(said, said.pop("check"))
        places = {queue: SegmentCursor(*map(int, said[queue])) for queue in QUEUES}
        return SpoolState(places, SpoolLosses(said["lost"]).open_losses())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return SpoolState(dict.fromkeys(QUEUES, SegmentCursor()), ())


def _overwrite(path: Path, data: bytes) -> bool:
    """Put new content over the old in one step, at a tenth of the cost of a new file; False where the sizes differ."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.fstat(descriptor).st_size == len(data) and os.pwrite(descriptor, data, 0) == len(data)
    finally:
        os.close(descriptor)


def _verify(said: Mapping[str, Any], check: int) -> None:
    if check != _check(said):
        raise ValueError("the checksum does not fit")


def _check(said: Mapping[str, Any]) -> int:
    return crc32(orjson.dumps(said, option=orjson.OPT_SORT_KEYS))


def lock(path: Path) -> IO[bytes]:
    """Hold a spool's folder until the file is closed.

    Raises:
        SpoolBusyError: another process holds it.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise SpoolBusyError(f"{path.parent} is in use by another sidecar: give each its own --spool") from error
    return file

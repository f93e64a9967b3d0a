"""`acknowledged.json`: how far the server has taken each queue, and what was lost and not told yet; with a checksum.

    {"events": [3, 1200], "telemetry": [1, 0], "lost": [], "check": 3735928559}

A flipped digit would make unsent events look sent: a file whose checksum does not fit says nothing.
"""

import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import orjson

from collectors.losses import Loss, Losses, Queue
from collectors.segments import Cursor, write_atomically

# So that its size stays the same, and it can be written over.
_LEAST_BYTES = 512
QUEUES: tuple[Queue, ...] = ("events", "telemetry")


class SpoolBusyError(Exception):
    """Another sidecar uses this folder."""


class SpoolFullError(Exception):
    """No room until the server has taken something."""


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What is saved beside the queues."""

    places: Mapping[Queue, Cursor]
    lost: Sequence[Loss]

    def write(self, path: Path, sync: bool) -> None:
        """Write the file; with `sync`, or where it tells of losses, wait until the disk has it.

        Raises:
            OSError: the disk is full or broken; the old file stays, or is one whose checksum does not fit.
        """
        said: dict[str, Any] = {queue: [place.segment, place.offset] for queue, place in self.places.items()}
        said["lost"] = [asdict(loss) for loss in self.lost]
        said["check"] = _check(said)
        data = orjson.dumps(said).ljust(_LEAST_BYTES)
        if sync or self.lost or not _overwrite(path, data):
            write_atomically(path, data)


def read_state(path: Path) -> SpoolState:
    """What was saved; nothing where the file is missing or damaged: sending again what is known changes nothing."""
    try:
        said = orjson.loads(path.read_bytes())
        _verify(said, said.pop("check"))
        places = {queue: Cursor(*map(int, said[queue])) for queue in QUEUES}
        return SpoolState(places, Losses(said["lost"]).open_losses())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return SpoolState(dict.fromkeys(QUEUES, Cursor()), ())


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

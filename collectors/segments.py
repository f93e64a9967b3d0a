"""An append-only log of records in segment files, each record with a checksum; a torn tail is cut off.

    FOLDER/00000001.seg     4 bytes length, 4 bytes CRC-32 of the payload (little-endian), payload; again and again

Deleting whole segments is the only way that space comes back: what is written is never changed.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

_HEADER = struct.Struct("<II")
_MAX_RECORD = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place between two records."""

    segment: int = 0
    offset: int = 0


class SegmentLog:
    """One log. Not safe for several threads: its owner locks."""

    def __init__(self, folder: Path, segment_bytes: int, opening: Callable[[], bytes | None]) -> None:
        """Open or create it. `opening` gives the first record of each new segment, where there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._opening = opening
        self._sizes = {int(path.stem): path.stat().st_size for path in folder.glob("*.seg")}
        self.torn_bytes = 0  # cut off the newest segment when it was opened
        self._corrupt: dict[int, int] = {}
        if self._sizes:
            self._cut_torn_tail(max(self._sizes))

    @property
    def size_bytes(self) -> int:
        """Its size on disk."""
        return sum(self._sizes.values())

    @property
    def corrupt_bytes(self) -> int:
        """What reading had to skip: the rest of a segment after a broken record."""
        return sum(self._corrupt.values())

    @property
    def end(self) -> Cursor:
        """The place after the newest record."""
        newest = max(self._sizes, default=0)
        return Cursor(newest, self._sizes.get(newest, 0))

    @property
    def segments(self) -> list[int]:
        """The numbers of its segments, oldest first."""
        return sorted(self._sizes)

    def append(self, payloads: Sequence[bytes]) -> None:
        """Write records and wait until the disk has them; all or none survive an error.

        Raises:
            OSError: the disk is full or broken; the log is as it was.
        """
        if not self._sizes or self._sizes[max(self._sizes)] >= self._segment_bytes:
            self._sizes[max(self._sizes, default=0) + 1] = 0
        newest = max(self._sizes)
        size = self._sizes[newest]
        first = self._opening() if size == 0 else None
        if first is not None:
            payloads = [first, *payloads]
        data = b"".join(_HEADER.pack(len(payload), crc32(payload)) + payload for payload in payloads)
        with self._path(newest).open("ab") as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
        if size == 0:
            sync_folder(self._folder)
        self._sizes[newest] = size + len(data)

    def read(self, cursor: Cursor) -> Iterator[tuple[bytes, Cursor]]:
        """The records after a place, each with the place after it. A broken one ends its segment, and is counted."""
        for number in self.segments:
            if number < cursor.segment:
                continue
            offset = cursor.offset if number == cursor.segment else 0
            with self._path(number).open("rb") as file:
                for payload, end in _records(file.fileno(), offset):
                    offset = end
                    yield payload, Cursor(number, end)
            if number != max(self._sizes):
                self._corrupt[number] = max(0, self._sizes[number] - offset)

    def drop_before(self, segment: int) -> None:
        """Delete the segments older than one."""
        for number in [number for number in self._sizes if number < segment]:
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]

    def drop_oldest(self) -> Cursor | None:
        """Delete the oldest segment; returns the place after it, None where there was none.

        The newest one's number is kept by an empty successor: a number is never used twice.
        """
        if not self._sizes:
            return None
        oldest = min(self._sizes)
        if len(self._sizes) == 1:
            self._path(oldest + 1).touch()
            self._sizes[oldest + 1] = 0
        self.drop_before(oldest + 1)
        return Cursor(oldest + 1, 0)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.seg"

    def _cut_torn_tail(self, number: int) -> None:
        good = 0
        with self._path(number).open("r+b") as file:
            for _payload, end in _records(file.fileno(), 0):
                good = end
            self.torn_bytes = self._sizes[number] - good
            if self.torn_bytes:
                file.truncate(good)
                os.fsync(file.fileno())
        self._sizes[number] = good


def _records(descriptor: int, offset: int) -> Iterator[tuple[bytes, int]]:
    """The good records from an offset on, each with the offset after it; ends at the first bad one."""
    while True:
        header = os.pread(descriptor, _HEADER.size, offset)
        if len(header) < _HEADER.size:
            return
        length, checksum = _HEADER.unpack(header)
        if not 0 < length <= _MAX_RECORD:  # a run of zeros, as a crash may leave, is no record
            return
        payload = os.pread(descriptor, length, offset + _HEADER.size)
        if len(payload) < length or crc32(payload) != checksum:
            return
        offset += _HEADER.size + length
        yield payload, offset


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's content: a reader, and a crash, see the old or the new, never a part."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)

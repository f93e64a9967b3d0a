"""An append-only log of records in segment files, each record with a checksum.

    FOLDER/00000001.seg     4 bytes length, 4 bytes CRC-32 of the payload (little-endian), payload; again and again

Space comes back by deleting whole segments. A torn tail is cut off when the log is opened. Whatever else is damaged
(a flipped bit, zeros, a file cut short or gone) costs the records that it touched: reading finds the next good one.
"""

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

# The bytes of one segment: finding its records, and the next good one after damage.

HEADER = struct.Struct("<II")  # a record's length and its CRC-32
_MAX_RECORD = 64 * 1024 * 1024
_NOT_ZERO = re.compile(rb"[^\0]")


def framed(payload: bytes) -> bytes:
    """A record as it stands in a segment."""
    return HEADER.pack(len(payload), crc32(payload)) + payload


def open_segment(path: Path) -> int:
    """A descriptor; -1 where there is nothing to read: its records are damaged then."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def record_at(descriptor: int, offset: int, size: int) -> bytes | None:
    """The record at an offset; None where there is no good one."""
    try:
        header = os.pread(descriptor, HEADER.size, offset)
        if len(header) < HEADER.size:
            return None
        length, checksum = HEADER.unpack(header)
        # A run of zeros, as a crash may leave, is no record though its checksum fits.
        if not 0 < length <= min(_MAX_RECORD, size - offset - HEADER.size):
            return None
        payload = os.pread(descriptor, length, offset + HEADER.size)
    except OSError:
        return None
    return payload if len(payload) == length and crc32(payload) == checksum else None


def resync(descriptor: int, offset: int, size: int) -> int:
    """Where the next good record after a broken one begins; `size` where there is none."""
    try:
        data = os.pread(descriptor, size - offset, offset)
    except OSError:
        return size
    # A length's highest byte is zero (no segment has 16 MB), and a record of JSON text holds no zero.
    zero = data.find(b"\0", 4)
    while 0 <= zero <= len(data) - 5:
        length, checksum = HEADER.unpack_from(data, zero - 3)
        start = zero - 3 + HEADER.size
        if 0 < length <= len(data) - start and crc32(memoryview(data)[start : start + length]) == checksum:
            return offset + zero - 3
        after = _NOT_ZERO.search(data, zero + 1)
        if after is None:
            break
        zero = data.find(b"\0", max(zero + 1, after.start() + 1) if length == 0 else zero + 1)
    return size


_BLOCK = 4096  # a file system gives back no less


@dataclass(frozen=True, slots=True, order=True)
class SegmentCursor:
    """A place between two records."""

    segment: int = 0
    offset: int = 0


class SegmentLog:
    """One log. Not safe for several threads: its owner locks."""

    def __init__(self, folder: Path, segment_bytes: int, opening: Callable[[], bytes | None]) -> None:
        """Open or create it. `opening` gives the first record of each new segment, where there is one."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._opening = opening
        self._sizes = {int(path.stem): path.stat().st_size for path in folder.glob("*.seg") if path.stem.isdigit()}
        self._least = 1  # no new segment has a smaller number
        self._descriptor = -1  # of the newest segment, once it is written to
        self._written = 0  # which segment that is
        self._counted: dict[int, int] = {}  # damage before these offsets was counted
        self.unsynced = False
        self.torn_bytes = 0  # cut off the newest segment when it was opened
        self.damaged_bytes = 0  # what reading had to pass over
        if self._sizes:
            self._cut_torn_tail(max(self._sizes))

    @property
    def size_bytes(self) -> int:
        """Its size on disk."""
        return sum(self._sizes.values())

    @property
    def end(self) -> SegmentCursor:
        """The place after the newest record."""
        newest = max(self._sizes, default=0)
        return SegmentCursor(newest, self._sizes.get(newest, 0))

    @property
    def segments(self) -> list[int]:
        """The numbers of its segments, oldest first."""
        return sorted(self._sizes)

    def missing(self, after: int) -> int:
        """How many segments are gone between one and the newest: nobody but a person or the disk takes those away."""
        return sum(number not in self._sizes for number in range(after + 1, max(self._sizes, default=0)))

    def begin_after(self, segment: int) -> None:
        """Never write a segment up to this number: places in them were given away before."""
        self._least = max(self._least, segment + 1)

    def append(self, payloads: Sequence[bytes], sync: bool = True) -> None:
        """Write records; with `sync`, wait until the disk has them. All or none survive an error.

        Raises:
            OSError: the disk is full or broken; the log is as it was.
        """
        self._append_to(self._place(), payloads, sync)

    def begin_next(self) -> bool:
        """Have a segment after those that hold anything, so that they may go; False where that would free nothing.

        Raises:
            OSError: there is no room for its opening record; the log is as it was.
        """
        first = self._opening()
        begun = 0 if first is None else len(framed(first))
        if self.size_bytes < begun + _BLOCK:
            return False
        newest = max(self._sizes)
        self._writable(newest, self._sizes[newest])  # cut what a failed write left: nobody will do it later
        if first is None:
            self.begin_after(newest)
        else:
            self._append_to(max(newest + (self._sizes[newest] > 0), self._least), [], sync=True)
        return True

    def undo(self, place: SegmentCursor) -> None:
        """Take back what was appended after a place."""
        for number in [number for number in self._sizes if number >= place.segment]:
            size = place.offset if number == place.segment else 0
            with suppress(OSError):  # else the next append cuts it
                os.truncate(self._path(number), size)
            self._sizes[number] = size

    def sync(self) -> None:
        """Wait until the disk has every record.

        Raises:
            OSError: it is broken.
        """
        if self.unsynced and self._descriptor >= 0:
            os.fsync(self._descriptor)
        self.unsynced = False

    def read(self, cursor: SegmentCursor) -> Iterator[tuple[bytes | None, SegmentCursor]]:
        """The records after a place, each with the place after it; None stands for a damaged stretch, counted."""
        for number in self.segments:
            if number >= cursor.segment:
                yield from self.read_segment(number, cursor.offset if number == cursor.segment else 0)

    def read_segment(
        self, number: int, offset: int = 0, count: bool = True
    ) -> Iterator[tuple[bytes | None, SegmentCursor]]:
        """The same of one segment; without `count` its damage is not counted."""
        size = self._sizes[number]
        descriptor = open_segment(self._path(number))
        try:
            while offset < size:
                payload = record_at(descriptor, offset, size)
                after = resync(descriptor, offset, size) if payload is None else offset + HEADER.size + len(payload)
                if payload is None and count and self._counted.get(number, 0) < after:
                    self.damaged_bytes += after - max(offset, self._counted.get(number, 0))
                    self._counted[number] = after
                offset = after
                yield payload, SegmentCursor(number, offset)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def is_boundary(self, cursor: SegmentCursor) -> bool:
        """Whether a record ends or begins at a place."""
        if cursor.offset == 0 or cursor.segment not in self._sizes:
            return True
        return any(end == cursor for _payload, end in self.read_segment(cursor.segment, count=False))

    def replace(self, segment: int, payloads: Sequence[bytes]) -> None:
        """Put other records in the place of an older segment's: all or none.

        Raises:
            OSError: the disk is full or broken; the segment is as it was.
        """
        data = b"".join(map(framed, payloads))
        write_atomically(self._path(segment), data)
        self._sizes[segment] = len(data)
        self._counted.pop(segment, None)

    def drop_before(self, segment: int) -> None:
        """Delete the segments older than one."""
        for number in [number for number in self._sizes if number < segment]:
            if number == self._written:
                self.close()  # a file that is open keeps its room
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]
            self._counted.pop(number, None)

    def drop_oldest(self) -> SegmentCursor | None:
        """Delete the oldest segment; returns the place after it, None where there was none.

        A number is never used twice.
        """
        if not self._sizes:
            return None
        oldest = min(self._sizes)
        self.begin_after(oldest)
        self.drop_before(oldest + 1)
        return SegmentCursor(oldest + 1, 0)

    def close(self) -> None:
        """Let go of the newest segment's file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.seg"

    def _append_to(self, number: int, payloads: Sequence[bytes], sync: bool) -> None:
        size = self._sizes.get(number, 0)
        first = self._opening() if size == 0 else None
        data = b"".join(map(framed, payloads if first is None else [first, *payloads]))
        descriptor = self._writable(number, size)
        try:
            _write_all(descriptor, data, size)
            if sync:
                os.fsync(descriptor)
            if size == 0:
                sync_folder(self._folder)
        except OSError:
            with suppress(OSError):  # else the next append cuts it
                os.ftruncate(descriptor, size)
            raise
        self._sizes[number] = size + len(data)
        self.unsynced = not sync

    def _place(self) -> int:
        """The segment to write to: the newest, or the next one where that is full or not to be used."""
        newest = max(self._sizes, default=0)
        full = self._sizes.get(newest, self._segment_bytes) >= self._segment_bytes
        return max(newest + full, self._least)

    def _writable(self, number: int, size: int) -> int:
        """A descriptor of a segment that holds `size` good bytes: what a failed write left behind them is cut."""
        if self._descriptor >= 0 and (self._written != number or os.fstat(self._descriptor).st_nlink == 0):
            self.sync()
            self.close()
        if self._descriptor < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._written = number
        if os.fstat(self._descriptor).st_size > size:
            os.ftruncate(self._descriptor, size)
        return self._descriptor

    def _cut_torn_tail(self, number: int) -> None:
        """What ends the newest segment and is no record was never reported as saved, or is read again."""
        good = 0
        for payload, end in self.read_segment(number, count=False):
            if payload is not None:
                good = end.offset
        self.torn_bytes = self._sizes[number] - good
        if self.torn_bytes:
            with self._path(number).open("r+b") as file:
                file.truncate(good)
                os.fsync(file.fileno())
        self._sizes[number] = good


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file's content: a reader, and a crash, see the old or the new, never a part.

    Raises:
        OSError: it cannot be written; the old content stays, and no leftover takes room.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)

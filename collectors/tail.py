"""Bytes of a growing file to whole lines, with the place of each: pure, so that a test can feed it strings.

splitter = LineSplitter()
splitter.feed(b"one\\ntw")  -> [(1, b"one")]       splitter.offset == 4
splitter.feed(b"o\\n")      -> [(2, b"two")]       splitter.offset == 8
"""

from dataclasses import dataclass
from zlib import crc32

from parsers.parser import MAX_LINE

# This many bytes before the position tell whether the file is still the one that was read.
MARK_BYTES = 256


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far a file was read: whole lines only. `generation` counts how often the same file began anew."""

    device: int
    inode: int
    generation: int = 0
    offset: int = 0
    line: int = 0
    flushed_line: int = 0  # the parser held nothing back after this line
    mark: int = 0  # checksum of the bytes before `offset`
    path: str = ""  # where it was opened, links followed

    @property
    def identity(self) -> str:
        """The same text for the same file and generation: what ids of its lines are made of."""
        return f"{self.device:x}.{self.inode:x}.{self.generation}"

    def state(self) -> dict[str, int | str]:
        """What to save: asked for at every turn, so written out."""
        return {
            "device": self.device,
            "inode": self.inode,
            "generation": self.generation,
            "offset": self.offset,
            "line": self.line,
            "flushed_line": self.flushed_line,
            "mark": self.mark,
            "path": self.path,
        }


def mark_of(before: bytes) -> int:
    """The checksum of the bytes before a position."""
    return crc32(before[-MARK_BYTES:])


class LineSplitter:
    """Whole lines and their numbers. A line longer than MAX_LINE is cut there; the rest of it is not kept."""

    def __init__(self, offset: int = 0, line: int = 0) -> None:
        self.offset = offset  # of the first byte that is not yet in a whole line
        self.line = line  # whole lines before it
        self._partial = bytearray()
        self._pending = 0  # bytes read beyond `offset`, kept or not

    @property
    def read_offset(self) -> int:
        """Where the next byte to feed is."""
        return self.offset + self._pending

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The lines that these bytes complete, numbered from 1, without their ends."""
        lines = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            self.offset += self._pending + end + 1 - start
            self._pending = 0
            lines.append(self._whole())
            start = end + 1
        self._keep(data[start:])
        self._pending += len(data) - start
        return lines

    def rest(self) -> list[tuple[int, bytes]]:
        """The last line, which has no end and will get none: the file is finished."""
        if not self._pending:
            return []
        self.offset += self._pending
        self._pending = 0
        return [self._whole()]

    def _keep(self, data: bytes) -> None:
        if not self._partial:
            data = data.lstrip(
                b"\0"
            )  # a writer that was not told of a truncation leaves a hole of these before its line
        self._partial += data[: MAX_LINE - len(self._partial)]

    def _whole(self) -> tuple[int, bytes]:
        self.line += 1
        whole = bytes(self._partial)
        self._partial.clear()
        return self.line, whole

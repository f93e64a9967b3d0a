"""The bytes of a log at any place of it, plain or rotated and compressed, and how far they were read.

    open_content(Path("kern.log.2.gz")).read_at(1200, 256)    256 bytes of the log as it was before it was compressed

Places in a compressed file are those of its content, so that a position in the log holds in its archive too.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol
from zlib import crc32

# A suffix that says that a file is compressed in a way that is read here.
PACKED_SUFFIXES = (".gz", ".zst")
# So much content of one archive is unpacked at most to find a place in it.
MOST_SKIPPED_BYTES = 2 * 2**30


class Content(Protocol):
    """What is read from."""

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer only at the end."""

    def size(self) -> int | None:
        """How many there are; None where only reading tells."""

    def inode(self) -> int:
        """Of the open file: as long as it is open no other file has it."""

    def close(self) -> None:
        """Let go of the file."""


class PlainContent:
    """A file as it is."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path)

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes there."""
        return os.pread(self._file.fileno(), size, offset)

    def size(self) -> int | None:
        """Its size now."""
        return os.fstat(self._file.fileno()).st_size

    def inode(self) -> int:
        """Of the open file."""
        return os.fstat(self._file.fileno()).st_ino

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class PackedContent:
    """A gzip or zstd file's content. It is unpacked in order: a step back begins anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._chunks: Iterator[bytes] = iter(())
        self._begin()

    def _begin(self) -> None:
        from parsers.text.lines import plain  # only here: zstandard is not needed where nothing is compressed

        self._file.seek(0)
        self._chunks = plain(self._file, self._path.name)
        self._held = b""
        self._at = 0  # of the first byte held

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes there.

        Raises:
            ReadError: it is damaged or cut short before that.
        """
        if offset < self._at:
            self._begin()
        if offset - self._at > MOST_SKIPPED_BYTES:
            return b""
        while self._at + len(self._held) < offset + size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            drop = min(len(self._held), max(0, offset - self._at))
            self._held, self._at = self._held[drop:] + chunk, self._at + drop
        return self._held[max(0, offset - self._at) :][:size]

    def size(self) -> int | None:
        """Not known."""
        return None

    def inode(self) -> int:
        """Of the archive."""
        return os.fstat(self._file.fileno()).st_ino

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


def open_content(path: Path) -> Content:
    """A file's content, by its name plain or unpacked."""
    return PackedContent(path) if path.suffix in PACKED_SUFFIXES else PlainContent(path)


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

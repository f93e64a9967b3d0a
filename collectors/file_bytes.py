"""The bytes of a log at any place of it: of a plain file, or of one that was rotated and compressed.

Places in a compressed file are those of its content, so that a position in the log holds in its archive too.
"""

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Protocol

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
        from parsers.lines import plain  # only here: zstandard is not needed where nothing is compressed

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

r"""Bytes of a growing file to whole lines, with the place of each: pure, so that a test can feed it strings.

splitter = LineSplitter()
splitter.feed(b"one\ntw")  -> [(1, b"one")]       splitter.offset == 4
splitter.feed(b"o\n")      -> [(2, b"two")]       splitter.offset == 8
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Protocol
from zlib import crc32

from collectors.decoder import Decoder
from parsers.text.parser import MAX_LINE, Parser, clean
from store.records.event import Event

# The bytes of a log at any place of it: of a plain file, or of one that was rotated and compressed.
#
# Places in a compressed file are those of its content, so that a position in the log holds in its archive too.

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


# One open file, followed: bytes to events, and the position after them.
#
# A file is known by its inode and by the bytes before the position: a log that was truncated and written again is
# another generation of the same file, and is read from its start.

_CHUNK = 64 * 1024  # a flood of faults takes some twenty times as much memory, decoded and encoded
# What a parser is shown again after a restart: the beginning (a header names columns) and the end.
_HEAD_BYTES = 16 * 1024
_REHEARSE_BYTES = 64 * 1024

MakeParser = Callable[[], Parser]


class FileTail:
    """A file from a position on. `origins` false: a line says the same wherever it stands (a table's row)."""

    def __init__(
        self, path: Path, position: FilePosition, make_parser: MakeParser, origins: bool = True, file: str | None = None
    ) -> None:
        self.path = path
        self._content = open_content(path)
        self._position = position
        self._splitter = LineSplitter(position.offset, position.line)
        identity = position.identity
        self._decoder = Decoder(
            make_parser(), (lambda line: f"file:{identity}:{line}") if origins else (lambda _line: ""), file
        )
        self._decoder.flushed_line = position.flushed_line
        if position.offset:
            self._rehearse(position)
        self.lines = 0
        self._at_end = False
        self.broken = False  # it cannot be read any further

    @property
    def inode(self) -> int:
        """What the file is known by, whatever its name is now."""
        return self._position.inode

    @property
    def open_inode(self) -> int:
        """Of what is read: where that is a copy or an archive, another one."""
        return self._content.inode()

    @property
    def generation(self) -> int:
        """How often this file began anew."""
        return self._position.generation

    def is_same(self) -> bool:
        """Whether the file still is what was read: no shorter, and the same bytes before the position."""
        size = self._content.size()
        if size is None:
            return True
        if size < self._splitter.read_offset:
            return False
        return self._mark(self._position.offset) == self._position.mark

    def read(self) -> bool:
        """Decode what was appended, at most one chunk; False where there is nothing new."""
        data = self._content.read_at(self._splitter.read_offset, _CHUNK)
        self._at_end = len(data) < _CHUNK
        if not data:
            return False
        self._feed(self._splitter.feed(data))
        return True

    @property
    def settled(self) -> bool:
        """Whether the last read came to the end and nothing of it is held back: nothing is to do before a change."""
        return self._at_end and not self._decoder.holding

    def finish(self) -> None:
        """No more will be appended: the last line need not end."""
        self._feed(self._splitter.rest())
        self._decoder.flush()

    def flush(self) -> None:
        """The file is quiet: nothing more belongs to what the parser holds back."""
        self._decoder.flush()

    def take(self) -> tuple[tuple[Event, ...], int, int]:
        """The events, lines and broken lines since the last call."""
        lines, self.lines = self.lines, 0
        return self._decoder.take(), lines, self._decoder.take_errors()

    def position(self) -> FilePosition:
        """Where it stands: after the last whole line."""
        before, read, flushed_line = self._position, self._splitter, self._decoder.flushed_line
        if before.offset != read.offset:
            mark = self._mark(read.offset)
            self._position = replace(before, offset=read.offset, line=read.line, flushed_line=flushed_line, mark=mark)
        elif before.flushed_line != flushed_line:
            self._position = replace(before, flushed_line=flushed_line)
        return self._position

    def close(self) -> None:
        """Let go of the file."""
        self._content.close()

    def _feed(self, lines: list[tuple[int, bytes]]) -> None:
        self.lines += len(lines)
        for number, raw in lines:
            self._decoder.feed(clean(raw), number)

    def _mark(self, offset: int) -> int:
        start = max(0, offset - MARK_BYTES)
        return mark_of(self._content.read_at(start, offset - start))

    def _rehearse(self, position: FilePosition) -> None:
        """Show the parser what it saw before, so that it knows what it knew."""
        start = max(0, position.offset - _REHEARSE_BYTES)
        head = LineSplitter().feed(self._content.read_at(0, min(_HEAD_BYTES, start))) if start else []
        end = LineSplitter().feed(self._content.read_at(start, position.offset - start))
        if start > 0:
            end = end[1:]  # begun in the middle
        shift = position.line - (end[-1][0] if end else 0)
        numbered = [(number + shift, raw) for number, raw in end]
        self._decoder.rehearse([(number, clean(raw)) for number, raw in head + numbered], position.flushed_line)

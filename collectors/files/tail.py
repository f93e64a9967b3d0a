r"""A growing file as events: whole lines, the parser behind them, and the position after them.

    splitter = LineSplitter()
    splitter.feed(b"one\ntw")  -> [(1, b"one")]       splitter.offset == 4
    splitter.feed(b"o\n")      -> [(2, b"two")]       splitter.offset == 8

The inode and the bytes before the position identify a file. A log that was truncated and written again is another
generation of the same file: it is read from its start.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from collectors.decoder import Decoder
from collectors.files.content import MARK_BYTES, FilePosition, PlainContent, mark_of, open_content
from parsers.text.parser import MAX_LINE, Parser, clean
from store.records.event import Event


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

    def block(self, data: bytes) -> bytes | None:
        """The lines that these bytes complete, with their ends, as they stand; None where a line must be cut or holds
        NUL bytes: then nothing has changed, and `feed` takes the bytes."""
        if b"\0" in data or self._pending > len(self._partial):
            return None
        end = data.rfind(b"\n") + 1
        whole = bytes(self._partial) + data[:end]
        count = whole.count(b"\n")
        if len(whole) - count > MAX_LINE and max(map(len, whole.split(b"\n"))) > MAX_LINE:
            return None
        if len(data) - end + (0 if end else len(self._partial)) > MAX_LINE:
            return None
        if end:
            self.offset += len(whole)
            self.line += count
            self._partial.clear()
        self._partial += data[end:]
        self._pending = len(self._partial)
        return whole if end else b""

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
            )  # a writer that does not know of a truncation leaves a hole of these before its line
        self._partial += data[: MAX_LINE - len(self._partial)]

    def _whole(self) -> tuple[int, bytes]:
        self.line += 1
        whole = bytes(self._partial)
        self._partial.clear()
        return self.line, whole


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
        self._is_plain = isinstance(self._content, PlainContent)  # one that is unpacked has no way back
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
        self._newest = b""  # the bytes before the last whole line's end, where they are known
        self._before = b""  # the bytes before the place that was read to, where they are known
        self._ahead: bytes | None = None  # what follows them, where that was read with them
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
        if known := self._before:
            data = self._content.read_at(self._splitter.read_offset - len(known), len(known) + _CHUNK)
            self._ahead = data[len(known) :]
            return data.startswith(known)
        size = self._content.size()
        if size is None:
            return True
        if size < self._splitter.read_offset:
            return False
        return self._mark(self._position.offset) == self._position.mark

    def read(self) -> bool:
        """Decode what was appended, at most one chunk; False where there is nothing new."""
        ahead, self._ahead = self._ahead, None
        data = self._content.read_at(self._splitter.read_offset, _CHUNK) if ahead is None else ahead
        self._at_end = len(data) < _CHUNK
        if not data:
            return False
        if self._is_plain:
            self._before = (self._before + data)[-MARK_BYTES:]
        before = self._splitter.line
        block = self._splitter.block(data)
        self._newest = b"" if block is None else block[-MARK_BYTES:]
        if block is None:
            self._feed(self._splitter.feed(data))
        elif self._decoder.is_quiet(block):
            last = block.rfind(b"\n", 0, -1) + 1
            self.lines += self._splitter.line - before
            self._decoder.pass_over(block[last:], self._splitter.line)
        else:
            self._feed(list(enumerate(block.split(b"\n")[:-1], before + 1)))
        return True

    @property
    def settled(self) -> bool:
        """Whether the last read came to the end and nothing of it is held back: nothing is to do before a change."""
        return self._at_end and not self._decoder.holding

    def finish(self) -> None:
        """No more will be appended: the last line need not end."""
        self._newest = b""
        self._feed(self._splitter.rest())
        self._decoder.flush()

    def flush(self) -> None:
        """The file is quiet: nothing more belongs to what the parser holds back."""
        self._decoder.flush()

    @property
    def has_news(self) -> bool:
        """Whether the lines since the last `take` gave anything but their number."""
        return self._decoder.has_news

    def take(self) -> tuple[tuple[Event, ...], int, int]:
        """The events, lines and broken lines since the last call."""
        lines, self.lines = self.lines, 0
        return self._decoder.take(), lines, self._decoder.take_errors()

    def take_refused(self) -> dict[str, int]:
        """The lines since the last call whose writer may not say what they say, by the reason."""
        return self._decoder.take_refused()

    def position(self) -> FilePosition:
        """Where it stands: after the last whole line."""
        before, read, flushed_line = self._position, self._splitter, self._decoder.flushed_line
        if before.offset != read.offset:
            mark = mark_of(self._newest) if len(self._newest) >= MARK_BYTES else self._mark(read.offset)
            place = (before.device, before.inode, before.generation, read.offset, read.line, flushed_line, mark)
            self._position = FilePosition(*place, before.path)  # as replace() does: at every turn
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

r"""The lines of interest of blocks of bytes, numbered: the others are passed over unread.

    pick = Picker(SIGNS)
    pick(b"\nquiet\nNVRM: Xid (PCI:0000:0f:00): 79, ...\n", 1, 50) -> Picked(2, [(0, "quiet"), (1, "NVRM: Xid ...")])

To feed a parser more lines than it needs, in order, changes nothing: so the first and the last line of a block are
picked always, and what spans blocks needs no memory between them.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from parsers.text.parser import MAX_LINE, NEVER, FormatSigns, clean

# Where in a block of bytes signs stand: Hyperscan where it is installed, else RE2, which always is.
#
#     search = matcher(SIGNS)
#     search(b"\n...\n... NVRM: Xid ...", 1, 23) -> [12, ...]
#
# Both find the same lines; docs/benchmarks.md has the table by which they were chosen.

Block: TypeAlias = bytes | bytearray
# Ascending places, each within a line of interest; a line may be reported several times. The byte before the first one
# searched is the end of the line before.
Search: TypeAlias = Callable[[Block, int, int], list[int]]


def matcher(signs: FormatSigns) -> Search:
    """The fastest that is installed."""
    try:
        return by_hyperscan(signs)
    except ImportError:
        return by_re2(signs)


def by_hyperscan(signs: FormatSigns) -> Search:
    """Vectorised: some 3 GB/s on one core.

    Raises:
        ImportError: it is not installed (it comes with foreshock[fast]), or not for this processor.
    """
    import hyperscan

    patterns = _patterns(signs)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(expressions=patterns, ids=list(range(len(patterns))), flags=[0] * len(patterns))
    except hyperscan.ArchitectureError as error:
        raise ImportError("Hyperscan does not know this processor") from error

    def search(block: Block, start: int, end: int) -> list[int]:
        places: list[int] = []
        origin = max(start - 1, 0)

        def found(_id: int, _from: int, to: int, _flags: int, _context: object) -> None:
            places.append(origin + to - 1)

        with memoryview(block) as view, view[origin:end] as part:
            database.scan(cast("bytes", part), match_event_handler=found)  # it takes any buffer
        return sorted(places)

    return search


def by_re2(signs: FormatSigns) -> Search:
    """An automaton, byte for byte: some 600 MB/s on one core."""
    import re2

    from parsers.text.re2_pattern import options

    pattern = re2.compile(b"|".join(_patterns(signs)), options())

    def search(block: Block, start: int, end: int) -> list[int]:
        places: list[int] = []
        at = max(start - 1, 0)
        while at < end and (match := pattern.search(block, at, end)):
            places.append(match.end() - 1)
            at = block.find(b"\n", match.end() - 1, end)
            if at < 0:
                break
        return places

    return search


def _patterns(signs: FormatSigns) -> list[bytes]:
    """Each literal, then the starts behind a line's end; in the syntax that both engines share."""
    escaped = [re.escape(literal.encode("ascii")).replace(b"\\ ", b" ") for literal in signs.literals]
    return [*escaped, *([rb"\n(?:%b)" % signs.starts.encode("ascii")] if signs.starts else [])]


# What is larger is searched by the fastest matcher: Hyperscan needs as long to begin as RE2 for so much.
LARGE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineSelection:
    """What one block holds: how many lines, and those of interest, each with its place among them, from 0."""

    lines: int
    texts: list[tuple[int, str]]


def numbered(blocks: Iterable[LineSelection]) -> Iterator[tuple[int, str]]:
    """The picked lines of the blocks in turn, with their 1-based numbers."""
    before = 1
    for block in blocks:
        for place, text in block.texts:
            yield before + place, text
        before += block.lines


def select_lines(
    blocks: Iterable[bytes], signs: FormatSigns, large_bytes: int = LARGE_BYTES
) -> Iterator[LineSelection]:
    """What each block of whole lines holds. RE2 is ready at once; a large log is worth the wait for what is faster."""
    pick, left = LineSelector(signs, by_re2(signs)), large_bytes
    for block in blocks:
        yield pick(block, 0, len(block))
        left -= len(block)
        if left < 0 <= left + len(block):
            pick = LineSelector(signs)


class LineSelector:
    """Picks lines of interest."""

    def __init__(
        self, signs: FormatSigns, search: Search | None = None, kinds: Sequence[FormatSigns] | None = None
    ) -> None:
        """`search` is the matcher; the fastest that is installed where none is given.

        `kinds`: the signs of each format, where `signs` are those of several: a record goes on as its own format's do.
        """
        self._search = search or matcher(signs)
        self._starts = re.compile(signs.starts or NEVER, re.ASCII)
        self._kinds = [(re.compile(one.starts or NEVER, re.ASCII), one) for one in kinds or (signs,)]

    def __call__(self, block: Block, start: int, end: int) -> LineSelection:
        """The lines of a block from `start` to `end`.

        A line begins at `start`, its byte before is a line's end where there is one; the last one may lack its end.
        """
        if start >= end:
            return LineSelection(0, [])
        walk = _BlockReader(block, start, end)
        self._go_on(walk)
        hits = self._search(block, start, end)
        for hit in heapq.merge(hits, _nul_lines(block, start, end), (end - 1,)):
            if hit < walk.at:
                continue
            limit = walk.at
            text = walk.skip_to(hit)
            if self._starts.match(text):
                walk.step_back(limit)
                self._go_on(walk)
            else:
                walk.take(text)
        return LineSelection(walk.number, walk.taken)

    def _go_on(self, walk: "_BlockReader") -> None:
        """Take lines up to and with the first that does not go on with a record: of any format, as a block begins."""
        kinds, count = [one for _, one in self._kinds], 0
        for text in walk.take_on():
            if begun := [one for starts, one in self._kinds if starts.match(text)]:
                kinds, count = begun, 0
                continue
            count += 1
            if not any(count <= one.most and one.within.match(text) for one in kinds):
                return


class _BlockReader:
    """A place in a block, always at a line's beginning: how many lines are before it, which were taken."""

    def __init__(self, block: Block, start: int, end: int) -> None:
        self.at = start
        self.number = 0
        self.taken: list[tuple[int, str]] = []
        self._block = block
        self._end = end
        self._stop = start

    def text(self) -> str:
        """The line."""
        stop = self._block.find(b"\n", self.at, self._end)
        self._stop = self._end if stop < 0 else stop
        return clean(bytes(self._block[self.at : min(self._stop, self.at + MAX_LINE)]))

    def take(self, text: str) -> None:
        """Take the line, whose text was asked for, and go to the next."""
        self.taken.append((self.number, text))
        self.at = self._stop + 1
        self.number += 1

    def skip_to(self, place: int) -> str:
        """Go to the line that a place is in; its text."""
        begin = self._block.rfind(b"\n", self.at, place) + 1 or self.at
        self.number += self._block.count(b"\n", self.at, begin)
        self.at = begin
        return self.text()

    def step_back(self, limit: int) -> None:
        """Take the line before this one too, unless it begins before the limit."""
        if self.at > limit:
            self.at = self._block.rfind(b"\n", limit, self.at - 1) + 1 or limit
            self.number -= 1
            self.take(self.text())

    def take_on(self) -> Iterator[str]:
        """Take one line after the other; each is taken as it is given."""
        while self.at < self._end:
            text = self.text()
            self.take(text)
            yield text


def _nul_lines(block: Block, start: int, end: int) -> Iterator[int]:
    """Lines with NUL bytes, as crashed hosts leave them: `clean` takes them off, and a sign may stand around them."""
    at = block.find(b"\x00", start, end)
    while at >= 0:
        yield at
        stop = block.find(b"\n", at, end)
        at = -1 if stop < 0 else block.find(b"\x00", stop, end)

"""The lines of interest of blocks of bytes, numbered: the others are passed over unread.

    pick = Picker(SIGNS)
    pick(b"\\nquiet\\nNVRM: Xid (PCI:0000:0f:00): 79, ...\\n", 1, 50) -> Picked(2, [(0, "quiet"), (1, "NVRM: Xid ...")])

To feed a parser more lines than it needs, in order, changes nothing: so the first and the last line of a block are
picked always, and what spans blocks needs no memory between them.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from parsers.matcher import Block, Search, by_re2, matcher
from parsers.parser import MAX_LINE, clean
from parsers.signs import NEVER, Signs

# What is larger is searched by the fastest matcher: Hyperscan needs as long to begin as RE2 for so much.
LARGE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Picked:
    """What one block holds: how many lines, and those of interest, each with its place among them, from 0."""

    lines: int
    texts: list[tuple[int, str]]


def numbered(blocks: Iterable[Picked]) -> Iterator[tuple[int, str]]:
    """The picked lines of the blocks in turn, with their 1-based numbers."""
    before = 1
    for block in blocks:
        for place, text in block.texts:
            yield before + place, text
        before += block.lines


def picked(blocks: Iterable[bytes], signs: Signs, large_bytes: int = LARGE_BYTES) -> Iterator[Picked]:
    """What each block of whole lines holds. RE2 is ready at once; a large log is worth the wait for what is faster."""
    pick, left = Picker(signs, by_re2(signs)), large_bytes
    for block in blocks:
        yield pick(block, 0, len(block))
        left -= len(block)
        if left < 0 <= left + len(block):
            pick = Picker(signs)


class Picker:
    """Picks lines of interest."""

    def __init__(self, signs: Signs, search: Search | None = None) -> None:
        """`search` is the matcher; the fastest that is installed where none is given."""
        self._search = search or matcher(signs)
        self._starts = re.compile(signs.starts or NEVER, re.ASCII)
        self._within = signs.within

    def __call__(self, block: Block, start: int, end: int) -> Picked:
        """The lines of a block from `start` to `end`.

        A line begins at `start`, its byte before is a line's end where there is one; the last one may lack its end.
        """
        if start >= end:
            return Picked(0, [])
        walk = _Walk(block, start, end)
        walk.go_on(self._goes_on)
        hits = self._search(block, start, end)
        for hit in heapq.merge(hits, _nul_lines(block, start, end), (end - 1,)):
            if hit < walk.at:
                continue
            limit = walk.at
            text = walk.skip_to(hit)
            if self._starts.match(text):
                walk.step_back(limit)
                walk.go_on(self._goes_on)
            else:
                walk.take(text)
        return Picked(walk.number, walk.taken)

    def _goes_on(self, text: str) -> object:
        return self._starts.match(text) or self._within.match(text)


class _Walk:
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

    def go_on(self, goes_on: Callable[[str], object]) -> None:
        """Take lines up to and with the first that does not go on with a record."""
        while self.at < self._end:
            text = self.text()
            self.take(text)
            if not goes_on(text):
                return


def _nul_lines(block: Block, start: int, end: int) -> Iterator[int]:
    """Lines with NUL bytes, as crashed hosts leave them: `clean` takes them off, and a sign may stand around them."""
    at = block.find(b"\x00", start, end)
    while at >= 0:
        yield at
        stop = block.find(b"\n", at, end)
        at = -1 if stop < 0 else block.find(b"\x00", stop, end)

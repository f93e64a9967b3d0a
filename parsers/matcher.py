"""Where in a block of bytes signs stand: Hyperscan where it is installed, else RE2, which always is.

    search = matcher(SIGNS)
    search(b"\\n...\\n... NVRM: Xid ...", 1, 23) -> [12, ...]

Both find the same lines; docs/benchmarks.md has the table by which they were chosen.
"""

import re
from collections.abc import Callable
from typing import TypeAlias, cast

from parsers.signs import Signs

Block: TypeAlias = bytes | bytearray
# Ascending places, each within a line of interest; a line may be told several times. The byte before the first one
# searched is the end of the line before.
Search: TypeAlias = Callable[[Block, int, int], list[int]]


def matcher(signs: Signs) -> Search:
    """The fastest that is installed."""
    try:
        return by_hyperscan(signs)
    except ImportError:
        return by_re2(signs)


def by_hyperscan(signs: Signs) -> Search:
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


def by_re2(signs: Signs) -> Search:
    """An automaton, byte for byte: some 600 MB/s on one core."""
    import re2

    from parsers.re2_pattern import options

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


def _patterns(signs: Signs) -> list[bytes]:
    """Each literal, then the starts behind a line's end; in the syntax that both engines share."""
    escaped = [re.escape(literal.encode("ascii")).replace(b"\\ ", b" ") for literal in signs.literals]
    return [*escaped, *([rb"\n(?:%b)" % signs.starts.encode("ascii")] if signs.starts else [])]

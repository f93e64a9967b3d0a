"""The text files of an archive: plain, .gz or .zst, line by line in bounded memory, and the dates that they bear."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from parsers.lines import blocks, lines
from parsers.parser import clean
from parsers.scan import numbered, picked
from parsers.signs import Signs

_HEAD = 4096
_TAIL = 64 * 1024
# Bytes that text does not have: below space, but for tab, line ends, escape and the NULs of a crashed host's log.
_CONTROL = bytes(set(range(1, 32)) - {9, 10, 11, 12, 13, 27})
_BINARY_SHARE = 0.05
_DATE = re.compile(rb"\b(20\d\d-[01]\d-[0-3]\d)[T ]([0-2]\d:[0-5]\d:[0-5]\d)")


def lines_of(path: Path) -> Iterator[str]:
    """The file's lines as text; of one longer than MAX_LINE the beginning.

    Raises:
        ReadError, OSError: it cannot be read further; what came before was given.
    """
    with path.open("rb") as file:
        yield from map(clean, lines(file, path.name))


def texts_of(path: Path, signs: Signs | None) -> Iterator[tuple[int, str]]:
    """The file's lines with their 1-based numbers: where there are signs, those alone that a parser must be fed.

    Raises:
        ReadError, OSError: as of `lines_of`.
    """
    if signs is None:
        yield from enumerate(lines_of(path), start=1)
        return
    with path.open("rb") as file:
        yield from numbered(picked(blocks(file, path.name), signs))


def looks_binary(path: Path) -> bool:
    """Whether the file's beginning is no text in any encoding that logs have.

    Raises:
        ReadError, OSError: it cannot be read at all.
    """
    head = b""
    with path.open("rb") as file:
        for line in lines(file, path.name):
            head += line[: _HEAD - len(head)]
            if len(head) >= _HEAD:
                break
    return len(head.translate(None, _CONTROL)) < len(head) * (1 - _BINARY_SHARE)


def newest_in(path: Path) -> datetime | None:
    """The latest date and time that the end of an uncompressed file bears; None where it bears none."""
    if path.suffix in (".gz", ".zst"):
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        found = _DATE.findall(file.read(_TAIL))
    moments = [moment for day, time in found if (moment := _moment(f"{day.decode()}T{time.decode()}"))]
    return max(moments, default=None)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # 2025-02-31 has the shape of a date
        return None

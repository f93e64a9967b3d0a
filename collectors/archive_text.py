"""The text files of an archive: plain, .gz or .zst, line by line in bounded memory, and the dates that they bear."""

import gzip
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import zstandard

from parsers.parser import MAX_LINE, clean

_HEAD = 4096
_TAIL = 64 * 1024
# Bytes that text does not have: below space, but for tab, line ends, escape and the NULs of a crashed host's log.
_CONTROL = bytes(set(range(1, 32)) - {9, 10, 11, 12, 13, 27})
_BINARY_SHARE = 0.05
_DATE = re.compile(rb"\b(20\d\d-[01]\d-[0-3]\d)[T ]([0-2]\d:[0-5]\d:[0-5]\d)")


def open_bytes(path: Path) -> IO[bytes]:
    """The file's content, decompressed by its name."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]  # a GzipFile reads as a file does
    if path.suffix == ".zst":
        return zstandard.open(path, "rb")  # type: ignore[no-any-return]
    return path.open("rb")


def lines_of(path: Path) -> Iterator[str]:
    """The file's lines as text; of a longer one than MAX_LINE only the beginning, so that none can fill the memory.

    Raises:
        OSError, EOFError, zlib.error, zstandard.ZstdError: it cannot be read further; what came before was given.
    """
    with open_bytes(path) as file:
        while raw := file.readline(MAX_LINE):
            yield clean(raw)
            while len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE)


def looks_binary(path: Path) -> bool:
    """Whether the file's beginning is no text in any encoding that logs have."""
    with open_bytes(path) as file:
        head = file.read(_HEAD)
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

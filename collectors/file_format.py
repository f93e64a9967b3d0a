"""What the SPEC of a file says, and what format a file is of: as told, by its name, or by its first lines."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from collectors.collector import SourceError
from parsers.auto import SAMPLE_LINES, detect
from parsers.parser import clean
from parsers.registry import PARSERS

_BY_NAME = {"jobs.csv": "sacct", "outages.csv": "sacctmgr", "opensm.log": "opensm"}


def split_format(rest: str) -> tuple[Path, str | None]:
    """PATH[:FORMAT] as the two; no format means by its content.

    Raises:
        SourceError: no path, or a format that is not known.
    """
    path, colon, name = rest.rpartition(":")
    if colon and path and (name in PARSERS or name == "auto"):
        return Path(path), None if name == "auto" else name
    if colon and name.isidentifier() and not Path(rest).exists():
        raise SourceError(f"file:{rest}: {name} is no format: use one of {', '.join(sorted(PARSERS))} or auto")
    if not rest:
        raise SourceError("file: names no file: write file:PATH or file:PATH:FORMAT")
    return Path(rest), None


def format_of(path: Path) -> str | None:
    """The format of a file by its name or its first lines; None where there are too few to tell.

    Raises:
        SourceError: there are lines enough, and they are of no known format.
    """
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    with path.open("rb") as file:
        lines: Sequence[str] = [clean(line) for line in islice(file, SAMPLE_LINES)]
    found = detect(lines)
    if found is None and len(lines) >= SAMPLE_LINES:
        raise SourceError(f"cannot tell the format of {path}: name it, as in file:{path}:kernel")
    return found

"""`file:PATH[:FORMAT]`: follows a log through rotation and truncation, from its start where nothing was saved.

Renamed away: the old file is read to its end (its writer may still hold it open) beside the new one. Truncated or
copied and truncated: read again from its start. Not there yet: waited for.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

from collectors.collector import Collected, Position, SourceError, SourceSettings
from collectors.file_tail import FileTail, same_file
from collectors.tail import FilePosition
from parsers.auto import SAMPLE_LINES, detect
from parsers.parser import Context, Parser, clean
from parsers.registry import PARSERS
from parsers.ruled import make_parser
from store.event import Event

_LOG = logging.getLogger("foreshock.sidecar")
# A row of these says the same wherever it stands: a table that is written anew repeats nothing.
_TABLES = frozenset({"sacct", "sacctmgr"})
_DETECT_LINES = SAMPLE_LINES
_BY_NAME = {"jobs.csv": "sacct", "outages.csv": "sacctmgr", "opensm.log": "opensm"}


class FileCollector:
    """A followed path."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the SPEC without its scheme: PATH or PATH:FORMAT.

        Raises:
            SourceError: no path, or a format that is not known.
        """
        self._path, self._format = split_format(rest)
        self._spec = f"file:{rest}"
        self._settings = settings
        self._current: FileTail | None = None
        self._retiring: list[tuple[FileTail, float]] = []  # renamed away, and when each was last heard of
        self._finished: list[FileTail] = []
        self._missing_told = False
        self._day: date | None = None
        self._read_at = 0.0

    @property
    def spec(self) -> str:
        """What names it."""
        return self._spec

    def open(self, position: Position | None) -> None:
        """Find the files that were being read, wherever they were renamed to."""
        self._day = datetime.now(UTC).date()
        if position is not None:
            self._format = self._format or position.get("format")
            for place in position["files"]:
                self._reopen(FilePosition(**place))

    def _reopen(self, saved: FilePosition) -> None:
        if same_file(self._path, saved):
            self._current = self._tail(self._path, saved)
            return
        for sibling in sorted(self._path.parent.glob(f"{self._path.name}*")):
            if same_file(sibling, saved):
                self._retiring.append((self._tail(sibling, saved), time.monotonic()))
                return
        if self._path.exists() and self._path.stat().st_ino == saved.inode:
            self._current = self._tail(self._path, began_anew(saved))  # truncated while nobody looked
            return
        _LOG.warning("%s: the rest of the file read before is gone; going on with the present one", self._path)

    def collect(self, wait_s: float) -> Collected:
        """Lines that were appended, within at most `wait_s`."""
        deadline = time.monotonic() + wait_s
        if self._day != datetime.now(UTC).date():
            self._renew()
        while True:
            self._find()
            read = self._read_tails()
            events, lines, errors = self._take()
            if read or events or time.monotonic() >= deadline:
                return Collected(events=events, lines=lines, errors=errors, position=self._position())
            time.sleep(max(0.0, min(self._settings.poll_interval_s, deadline - time.monotonic())))

    def close(self) -> None:
        """Let go of every file."""
        for tail in self._tails():
            tail.close()
        self._current, self._retiring = None, []

    def _find(self) -> None:
        """See whether the path holds the file that is followed."""
        current = self._current
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._retire()
            if not self._missing_told:
                _LOG.info("%s is not there yet: waiting for it", self._path)
                self._missing_told = True
            return
        self._missing_told = False
        if current is not None and current.inode == status.st_ino:
            if not current.is_same():
                _LOG.info("%s was truncated: reading it from its start", self._path)
                place = began_anew(current.position())
                current.close()
                self._current = self._tail(self._path, place)
            return
        self._retire()
        self._format = self._format or format_of(self._path)
        if self._format is not None:  # else: too little of it to tell what it is
            self._current = self._tail(self._path, FilePosition(device=status.st_dev, inode=status.st_ino))

    def _retire(self) -> None:
        if self._current is not None:
            self._retiring.append((self._current, time.monotonic()))
            self._current = None

    def _read_tails(self) -> bool:
        """One chunk of each file; a renamed one that stays quiet is finished."""
        read = False
        now = time.monotonic()
        kept = []
        for tail, heard in self._retiring:
            if tail.read():
                read, heard = True, now
            elif now - heard > self._settings.rotation_grace_s:
                tail.finish()
                self._finished.append(tail)
                continue
            kept.append((tail, heard))
        self._retiring = kept
        if self._current is not None:
            if self._current.read():
                read, self._read_at = True, now
            elif now - self._read_at >= self._settings.poll_interval_s:
                self._current.flush()
        return read

    def _take(self) -> tuple[tuple[Event, ...], int, int]:
        events: tuple[Event, ...] = ()
        lines = errors = 0
        for tail in self._finished + self._tails():
            found, read, broken = tail.take()
            events, lines, errors = events + found, lines + read, errors + broken
        for tail in self._finished:
            tail.close()
        self._finished.clear()
        return events, lines, errors

    def _tails(self) -> list[FileTail]:
        current = [self._current] if self._current is not None else []
        return [tail for tail, _heard in self._retiring] + current

    def _position(self) -> Position:
        return {"format": self._format, "files": [asdict(tail.position()) for tail in self._tails()]}

    def _parser(self) -> Parser:
        now = datetime.now(UTC)
        context = Context(
            node=self._settings.node,
            year=now.astimezone(self._settings.zone).year,
            until=now,
            zone=self._settings.zone,
            run=self._path.name.split(".")[0],
        )
        return make_parser(str(self._format), context, self._settings.rules)

    def _tail(self, path: Path, position: FilePosition) -> FileTail:
        try:
            return FileTail(path, position, self._parser, self._format not in _TABLES, str(self._path))
        except PermissionError as error:
            raise SourceError(f"may not read {path}: let the sidecar's user read it (a group, or an ACL)") from error

    def _renew(self) -> None:
        """A new day: years and zones that lines do not name are worked out anew."""
        position = self._position()
        self.close()
        self.open(position)


def began_anew(position: FilePosition) -> FilePosition:
    """The start of the next generation of the same file."""
    return FilePosition(position.device, position.inode, generation=position.generation + 1)


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
        lines: Sequence[str] = [clean(line) for line in islice(file, _DETECT_LINES)]
    found = detect(lines)
    if found is None and len(lines) >= _DETECT_LINES:
        raise SourceError(f"cannot tell the format of {path}: name it, as in file:{path}:kernel")
    return found

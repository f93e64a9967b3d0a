"""`file:PATH[:FORMAT]`: follows a log through rotation and truncation, from its start where nothing was saved.

Renamed away: the old file is read to its end (its writer may still hold it open) beside the new one. Rotated several
times while nobody looked: every file between is read too, compressed or not. Copied and truncated: what was not read is
read from the copy, and the file again from its start. A link that points elsewhere: as if renamed. Not there yet:
waited for.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice
from pathlib import Path

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.decoder import gap
from collectors.files.changes import Changes, PathWatch
from collectors.files.content import FilePosition
from collectors.files.rotation import RotatedFiles, find, newer, same_file, status_of
from collectors.files.tail import FileTail
from collectors.trust import trust_of_file
from parsers.registry import MIXED, PARSERS, SAMPLE_LINES, detect, make_parser
from parsers.text.parser import Context, Parser, clean
from store.plural import many
from store.records.event import Event
from store.records.event_sources import Trust, may_tell

# What the SPEC of a file says, and what format a file is of: as told, by its name, or by its first lines.

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


def format_of(path: Path, trust: Trust = "system") -> str | None:
    """The format of a file by its name or its first lines, one that its writer may tell; None where too few tell one.

    Raises:
        SourceError: there are lines enough, and they are of no known format.
    """
    if path.name in _BY_NAME and may_tell(trust, _BY_NAME[path.name]):
        return _BY_NAME[path.name]
    with path.open("rb") as file:
        lines: Sequence[str] = [clean(line) for line in islice(file, SAMPLE_LINES)]
    found = detect(lines, trust)
    if found is None and len(lines) >= SAMPLE_LINES:
        raise SourceError(f"cannot tell the format of {path}: name it, as in file:{path}:kernel{_refused_too(lines)}")
    return found


def _refused_too(lines: Sequence[str]) -> str:
    """More of a sentence, where the lines are of a format that the log's writer may not tell."""
    return "" if detect(lines) is None else "; and say `trust:` where root alone writes it"


_LOG = logging.getLogger("foreshock.sidecar")
# A row of these says the same wherever it stands: a table that is written anew repeats nothing.
_TABLES = frozenset({"sacct", "sacctmgr"})
# A file whose changes are heard of is looked at so often all the same: not every write is reported.
UNHEARD_S = 2.0
# Lines that say nothing are told of so late: a turn costs as much as reading them.
_QUIET_S = 5.0
# Files that were rotated unseen and are read at once; of more, the newest.
_MOST_UNSEEN = 30
# Finished files that are remembered: one that comes back is not read twice, and its inode's next file is another one.
_MOST_DONE = 4


class FileCollector:
    """A followed path."""

    def __init__(self, rest: str, settings: SourceSettings, changes: Changes | None = None) -> None:
        """`rest` is the SPEC without its scheme: PATH or PATH:FORMAT; `changes` are another's, who waits for them.

        Raises:
            SourceError: no path, or a format that is not known.
        """
        self._path, reported = split_format(rest)
        self._named = self._format = reported or settings.format
        self.spec = f"file:{rest}"
        self._settings = settings
        self._changes = changes or Changes(Wake(), settings.busy_interval_s)
        self._owns_changes = changes is None
        self.wake = self._changes.wake
        self._heard = PathWatch(self._changes, self._path)
        self._settled = False  # read to its end, and nothing is held back
        self._current: FileTail | None = None
        self._retiring: list[tuple[FileTail, float]] = []  # renamed away, and when each was last heard of
        self._finished: list[FileTail] = []
        self._done: list[FilePosition] = []
        self._gaps: list[Event] = []
        self._missing_reported = False
        self._day: date | None = None
        self._read_at = 0.0

    def open(self, position: Position | None) -> None:
        """Find the files that were being read, wherever they were renamed to."""
        self._day = datetime.now(UTC).date()
        self._gaps.clear()
        if position is not None:
            self._format = self._format or self._saved_format(position)
            self._done = [FilePosition(**place) for place in position.get("done", ())]
            places = [FilePosition(**place) for place in position["files"]]
            for place in places:
                self._reopen(place, last=place is places[-1])

    def _saved_format(self, position: Position) -> str | None:
        """The format that was found before, where the log's writer may tell it."""
        name = position.get("format")
        return name if name is None or name == MIXED or may_tell(self._trust(self._path), name) else None

    def _trust(self, path: Path) -> Trust:
        """Whose word a file is, as it is now: the configuration's say, else its name, format, owner and mode."""
        return trust_of_file(path, self._named, self._settings.trust).trust

    def _reopen(self, saved: FilePosition, last: bool) -> None:
        if same_file(self._path, saved):
            self._heard.hear_file()
            self._current = self._tail(self._path, saved)
            return
        self._remember(saved)  # whatever is at the path now is another file, even where it has its inode
        if saved.path and same_file(Path(saved.path), saved):  # a link that points elsewhere now
            self._retiring.append((self._tail(Path(saved.path), saved), time.monotonic()))
        elif old := self._old(saved):
            self._retiring.append((self._tail(old.path, saved), time.monotonic()))
            if last:
                self._read_unseen(old)
        elif self._path.exists():
            _LOG.warning("%s: the rest of the file read before is gone; going on with the present one", self._path)
            self._missed(saved, "was rotated away or written anew: what followed what was read of it is gone")

    def collect(self, wait_s: float) -> CollectorTurn:
        """Lines that were appended, within at most `wait_s`."""
        deadline = time.monotonic() + wait_s
        if self._day != datetime.now(UTC).date():
            self._renew()
        if self._settled:  # whatever was there had been read
            self._wait(deadline)
        quiet_until = deadline
        while True:
            self._find()
            read = self._read_tails()
            now = time.monotonic()
            if read and quiet_until == deadline:
                quiet_until = min(deadline, now + _QUIET_S)
            if self._has_news() or now >= quiet_until or self.wake.is_set:
                return self._take()
            if self._settled or not read:
                self._wait(quiet_until)

    def _wait(self, deadline: float) -> None:
        """For something to look at; no longer than to a moment of the monotonic clock."""
        if (rest_s := deadline - time.monotonic()) > 0:
            self._changes.wait(min(rest_s, self.look_in_s))

    @property
    def look_in_s(self) -> float:
        """How soon it must be looked at again though nothing is heard of it."""
        calm = self._settled and not self._retiring and self._heard.is_heard(reading=self._current is not None)
        return UNHEARD_S if calm else self._settings.poll_interval_s

    def close(self) -> None:
        """Let go of every file."""
        for tail in [*self._finished, *self._tails()]:
            tail.close()
        self._current, self._retiring, self._finished = None, [], []
        self._heard.leave()
        if self._owns_changes:
            self._changes.close()

    def _find(self) -> None:
        """See whether the path holds the file that is followed."""
        self._heard.hear_folder()
        current = self._current
        status = self._status()
        if status is not None and current is not None and current.inode == status.st_ino:
            if not current.is_same():
                self._begin_anew(current)
            return
        self._retire()
        self._settled = status is None  # else there is something to read
        if status is None:
            return
        if current is not None and (old := self._old(current.position())):
            self._read_unseen(old)
        self._format = self._format or format_of(self._path, self._trust(self._path))
        if self._format is not None:  # else: too little of it to tell what it is
            self._heard.hear_file()
            self._current = self._tail(self._path, self._place(self._path, status.st_dev, status.st_ino))

    def _status(self) -> os.stat_result | None:
        """What is at the path; that nothing is there is said once."""
        status = status_of(self._path)
        if status is None and not self._missing_reported:
            _LOG.info("%s is not there: waiting for it", self._path)
        self._missing_reported = status is None
        return status

    def _place(self, path: Path, device: int, inode: int) -> FilePosition:
        """Where to begin with a file: a finished one that came back goes on, another one of its inode is new."""
        home = str(self._path.resolve())
        for done in reversed(self._done):
            if done.inode == inode:
                return done if same_file(path, done) else replace(restarted_position(done), path=home)
        return FilePosition(device, inode, path=home)

    def _begin_anew(self, current: FileTail) -> None:
        """It was truncated. What was not read of it may stand in a copy."""
        place = current.position()
        _LOG.info("%s was truncated: reading it from its start", self._path)
        if old := self._old(place):
            self._retiring.append((self._tail(old.path, place), time.monotonic()))
            self._read_unseen(old)
        current.close()
        self._current, self._settled = None, False
        self._current = self._tail(self._path, restarted_position(place))

    def _old(self, place: FilePosition) -> RotatedFiles | None:
        """Where the file of a position went."""
        return find(Path(place.path) if place.path else self._path, place) or find(self._path, place)

    def _read_unseen(self, old: RotatedFiles) -> None:
        """Read the files that were rotated after one, and that nobody opened, whole."""
        opened = {tail.open_inode for tail in self._tails()}
        unseen = [
            (file.path, place)
            for file in newer(self._path.resolve(), old)
            if file.inode not in opened and not (place := self._place(file.path, file.device, file.inode)).offset
        ]
        for path, place in unseen[-_MOST_UNSEEN:]:
            _LOG.info("%s was rotated before it was seen: reading it", path)
            self._retiring.append((self._tail(path, place), time.monotonic()))
        if len(unseen) > _MOST_UNSEEN:
            self._missed(unseen[0][1], f"was rotated {many(len(unseen), 'time')} unseen: the oldest are left out")

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
            if self._read_retiring(tail):
                read, heard = True, now
            elif now - heard > self._settings.rotation_grace_s:
                tail.finish()
                self._finished.append(tail)
                self._remember(tail.position())
                continue
            kept.append((tail, heard))
        self._retiring = kept
        if self._current is not None:
            if self._current.read():
                read, self._read_at, self._settled = True, now, self._current.settled
            elif not self._settled and now - self._read_at >= self._settings.poll_interval_s:
                self._current.flush()
                self._settled = True
        return read

    def _read_retiring(self, tail: FileTail) -> bool:
        """A chunk of an old file; one that cannot be read to its end is left where it is."""
        try:
            return tail.read()
        except (OSError, ValueError) as error:
            if not tail.broken:
                _LOG.warning("%s cannot be read to its end: %s", tail.path, error)
                self._missed(tail.position(), f"could not be read to its end ({str(error)[:200]})")
            tail.broken = True
            return False

    def _remember(self, place: FilePosition) -> None:
        others = [done for done in self._done if done.inode != place.inode]
        self._done = [*others, place][-_MOST_DONE:]

    def _missed(self, place: FilePosition, what: str) -> None:
        """Say that lines are missing; how many is not known. A table repeats itself: nothing of it is missing."""
        if self._format in _TABLES:
            return
        more = {"origin": "file", "path": str(self._path)}
        origin = f"file:{place.identity}:{place.offset}:rest"
        self._gaps.append(gap(self._settings.node, datetime.now(UTC), origin, f"{self._path} {what}.", more))

    def _has_news(self) -> bool:
        """Whether there is more to tell than a number of lines."""
        return bool(self._gaps or self._finished) or any(tail.has_news for tail in self._tails())

    def _take(self) -> CollectorTurn:
        """What the files gave since the last call, and where they stand."""
        events: tuple[Event, ...] = tuple(self._gaps)
        lines = errors = 0
        refused: Counter[str] = Counter()
        self._gaps.clear()
        for tail in self._finished + self._tails():
            found, read, broken = tail.take()
            events, lines, errors = events + found, lines + read, errors + broken
            if more := tail.take_refused():
                refused.update(more)
        for tail in self._finished:
            tail.close()
        self._finished.clear()
        return CollectorTurn(events, position=self._position(), lines=lines, errors=errors, refused=refused)

    def _tails(self) -> list[FileTail]:
        current = [self._current] if self._current is not None else []
        return [tail for tail, _heard in self._retiring] + current

    def _position(self) -> Position:
        files = [tail.position().state() for tail in self._tails()]
        done = {"done": [place.state() for place in self._done]} if self._done else {}
        return {"format": self._format, "files": files, **done}

    def _parser(self, path: Path, place: FilePosition) -> Parser:
        now = datetime.now(UTC)
        context = Context(
            node=self._settings.node,
            year=now.astimezone(self._settings.zone).year,
            until=now,
            zone=self._settings.zone,
            run=(Path(place.path) if place.path else self._path).name.split(".")[0],
            trust=self._trust(path),
        )
        return make_parser(str(self._format), context, self._settings.rules)

    def _tail(self, path: Path, place: FilePosition) -> FileTail:
        try:
            parser = partial(self._parser, path, place)
            return FileTail(path, place, parser, self._format not in _TABLES, str(self._path))
        except PermissionError as error:
            raise SourceError(f"may not read {path}: let the sidecar's user read it (a group, or an ACL)") from error

    def _renew(self) -> None:
        """A new day: years and zones that lines do not name are worked out anew."""
        position = self._position()
        self.close()
        self.open(position)


def restarted_position(place: FilePosition) -> FilePosition:
    """The start of the next generation of the same file."""
    return FilePosition(place.device, place.inode, generation=place.generation + 1, path=place.path)

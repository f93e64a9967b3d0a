"""`file:PATTERN[:FORMAT]`: follows every file that a pattern matches (`/var/log/train/*.log`), new ones as they come.

Each is followed as `file:PATH` is, rotation and all; their old and compressed forms are no files of their own. Of more
files than can be followed those that were written to last are; what one of them cannot do stops no other.
"""

import glob
import logging
import time
from collections import Counter
from pathlib import Path

from collectors.collector import Collector, CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.files.changes import Changes
from collectors.files.follow import UNHEARD_S, FileCollector, split_format
from collectors.files.rotation import is_rotation

_LOG = logging.getLogger("foreshock.sidecar")
# Their positions are saved together with every event, and each is an open file.
MOST_FILES = 64
_LOOK_S = 1.0
_FOLDER = ""  # whose changes are the pattern's folder's: no path
# A file that failed is tried again after so long.
_RETRY_S = 5.0
# One that is not heard, and that nobody has written to for so long, is looked at as often as the pattern is.
_IDLE_S = 60.0


def file_collector(rest: str, settings: SourceSettings) -> Collector:
    """The collector of one path, or of every file that a pattern (`*`, `?`, `[`) matches.

    Raises:
        SourceError: no path, or a format that is not known.
    """
    path, _format = split_format(rest)
    many = glob.has_magic(str(path)) and not path.exists()
    return FilesCollector(rest, settings) if many else FileCollector(rest, settings)


class FilesCollector:
    """A followed pattern."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the SPEC without its scheme: PATTERN or PATTERN:FORMAT.

        Raises:
            SourceError: no pattern, or a format that is not known.
        """
        self._pattern, format_name = split_format(rest)
        self._suffix = f":{format_name}" if format_name else ""
        self.spec = f"file:{rest}"
        self._settings = settings
        self.wake = Wake()
        self._changes = Changes(self.wake, settings.busy_interval_s)
        self._folder: int | None = None
        self._files: dict[str, FileCollector] = {}
        self._saved: dict[str, Position] = {}  # of each file, as of its last turn
        self._failed: dict[str, str] = {}  # files to be opened, and what was last reported of each
        self._heard: dict[str, float] = {}
        self._turn_due: dict[str, float] = {}
        self._looked = self._look_due = 0.0
        self._reported_left_out = 0

    def open(self, position: Position | None) -> None:
        """Go on with the files of a saved position; new ones are found at the first turn."""
        self._saved = dict(position["paths"]) if position else {}
        self._failed.clear()
        self._look_due = 0.0
        for path in self._saved:  # one that is not there any more may have been renamed
            self._add(path)

    def collect(self, wait_s: float) -> CollectorTurn:
        """Lines that were appended to any of them, within at most `wait_s`."""
        deadline = time.monotonic() + wait_s
        while True:
            self._look()
            now = time.monotonic()
            turns = [self._turn(path) for path in list(self._files) if self._turn_due[path] <= now]
            collected = CollectorTurn(
                events=tuple(event for turn in turns for event in turn.events),
                lines=sum(turn.lines for turn in turns),
                errors=sum(turn.errors for turn in turns),
                refused=sum((Counter(turn.refused) for turn in turns), Counter()),
                position={"paths": dict(self._saved)},
            )
            rest_s = deadline - time.monotonic()
            if collected.lines or collected.events or rest_s <= 0 or self.wake.is_set:
                return collected
            self._wait(rest_s)

    def close(self) -> None:
        """Let go of every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._changes.close()

    def _wait(self, most_s: float) -> None:
        """Until the next turn of any file; one that something is heard of has it at once."""
        due = min(self._look_due, *self._turn_due.values()) if self._turn_due else self._look_due
        for owner in self._changes.wait(min(most_s, due - time.monotonic())):
            if owner in self._turn_due:
                self._turn_due[owner] = 0.0
            elif owner == _FOLDER:
                self._look_due = min(self._look_due, self._looked + _LOOK_S)

    def _turn(self, path: str) -> CollectorTurn:
        """One file's turn; a failure is reported once, and the file is opened again after a while."""
        file, now = self._files[path], time.monotonic()
        try:
            if path in self._failed:
                file.open(self._saved.get(path))
            collected = file.collect(0.0)
        except (SourceError, OSError) as error:
            file.close()
            self._fail(path, str(error))
            return CollectorTurn()
        if self._failed.pop(path, None):
            _LOG.info("%s is read again", path)
        if collected.position is not None:
            self._saved[path] = collected.position
        if collected.lines:
            self._heard[path] = now
        idle_s = _LOOK_S if now - self._heard[path] > _IDLE_S else 0.0
        self._turn_due[path] = now if collected.lines else _next(now, max(file.look_in_s, idle_s))
        return collected

    def _fail(self, path: str, said: str) -> None:
        if said != self._failed.get(path):
            _LOG.error("source %s: %s", self.spec, said)
        self._failed[path] = said
        self._turn_due[path] = time.monotonic() + _RETRY_S

    def _add(self, path: str) -> None:
        self._files[path] = FileCollector(path + self._suffix, self._settings, self._changes)
        self._failed[path] = ""  # so that its first turn opens it
        self._heard[path] = self._turn_due[path] = time.monotonic()

    def _look(self) -> None:
        """Which files there are now."""
        now = time.monotonic()
        if now < self._look_due:
            return
        self._looked = now
        if not self._changes.sees(self._folder) and not glob.has_magic(str(self._pattern.parent)):
            self._folder = self._changes.watch_folder(self._pattern.parent, _FOLDER)
        self._look_due = _next(now, UNHEARD_S if self._changes.sees(self._folder) else _LOOK_S)
        chosen = self._chosen()
        for path in [path for path in self._files if path not in chosen]:
            self._leave(path)
        for path in chosen:
            if path not in self._files:
                self._add(path)

    def _leave(self, path: str) -> None:
        """A file that is gone, or that others were written to after: forgotten, unless an old form is still read."""
        position = self._saved.get(path)
        if not Path(path).exists() and (path in self._failed or (position is not None and position["files"])):
            return  # it was renamed, and is being read to its end
        self._files.pop(path).close()
        for known in (self._saved, self._failed, self._heard, self._turn_due):
            known.pop(path, None)

    def _chosen(self) -> set[str]:
        """The paths to follow."""
        found = {path for path in glob.glob(str(self._pattern), recursive=True) if Path(path).is_file()}  # noqa: PTH207 - of any root
        names: dict[Path, set[str]] = {}
        for path in found:
            names.setdefault(Path(path).parent, set()).add(Path(path).name)
        whole = [path for path in found if not is_rotation(Path(path).name, names[Path(path).parent])]
        left_out = len(whole) - MOST_FILES
        if left_out > self._reported_left_out:
            self._reported_left_out = left_out
            message = "source %s: of %d files the %d that were written to last are read: give a narrower pattern"
            _LOG.warning(message, self.spec, len(whole), MOST_FILES)
        return set(sorted(whole, key=_written_s, reverse=True)[:MOST_FILES])


def _next(now_s: float, every_s: float) -> float:
    """The next of moments that lie so far apart, the same for all files: waking is what a quiet file costs."""
    return (now_s // every_s + 1) * every_s if every_s > 0 else now_s


def _written_s(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:  # gone meanwhile
        return 0.0

"""`checkpoints:DIR[#run=NAME]`: looks at a checkpoint directory every minute and reports new saves.

    checkpoints:/lustre/ckpt/run-7           checkpoints:/lustre/ckpt#run=llm-70b

DIR holds the saves of one run, or folders that do, two levels down at most. A save is reported when it has begun,
and again when it is whole; then it is not read again while its folder's time stays the same. A scan reads a bounded
number of files; `files_skipped` of a save, or a line in the log, reports what it left out.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake, split_options
from collectors.decoder import number
from parsers.formats.checkpoints import TRACKERS, CheckpointEntry, CheckpointSave, event_of, iteration_in, saves_of
from store.records.event import Event

# One look at a checkpoint directory, at a bounded cost: such directories are on file servers that all share.
#
#     scan = Scan("/lustre/ckpt/run-7")
#     for place in scan.saves(): entries, skipped = scan.read(place)
#
# A look reads MOST_NAMES names and the times of MOST_FILES files, of one save FILES_OF_ONE. Links are not followed.

MOST_NAMES = 20_000
MOST_FILES = 10_000
FILES_OF_ONE = 2_000
_DEPTH = 2  # folders between the directory and the saves
_INNER_DEPTH = 4  # folders within a save
_MAX_TRACKER_BYTES = 256


class CheckpointScan:
    """A look: `names` and `files` count what it has read, `full` whether it left something out."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.names = self.files = 0
        self.full = False

    def saves(self) -> list[str]:
        """The paths of what is named as a save, the newest iterations first: where not all can be read, they count."""
        found = list(self._saves(self._root, _DEPTH))
        return sorted(found, key=lambda path: -(iteration_in(path.rpartition("/")[2]) or 0))

    def read(self, place: str) -> tuple[list[CheckpointEntry], int]:
        """The files of one save, and how many were left out."""
        if not Path(place).is_dir():
            found = self._file(place)
            return ([] if found is None else [found]), 0
        entries: list[CheckpointEntry] = []
        folders, skipped = [(place, _INNER_DEPTH)], 0
        while folders:
            folder, depth = folders.pop()
            for entry in self._list(folder):
                if _is_folder(entry):
                    folders += [(entry.path, depth - 1)] if depth else []
                elif len(entries) >= FILES_OF_ONE or self.files >= MOST_FILES:
                    skipped += 1
                elif (found := self._file(entry.path)) is not None:
                    entries.append(found)
        self.full |= self.files >= MOST_FILES
        return entries, skipped

    def trackers(self, folder: str) -> list[CheckpointEntry]:
        """The files that name the newest whole save."""
        found = []
        for name in sorted(TRACKERS):
            path = Path(folder) / name
            with suppress(OSError), path.open("rb") as file:
                text = file.read(_MAX_TRACKER_BYTES).decode("utf-8", "replace")
                stat = path.stat()
                found.append(CheckpointEntry(str(path), stat.st_mtime, stat.st_size, text=text))
        return found

    def _saves(self, folder: str, depth: int) -> Iterator[str]:
        for entry in self._list(folder):
            is_folder = _is_folder(entry)
            if iteration_in(entry.name, is_folder) is not None:
                yield entry.path
            elif is_folder and depth:
                yield from self._saves(entry.path, depth - 1)

    def _list(self, folder: str) -> list["os.DirEntry[str]"]:
        """What a folder holds, as far as this look may still read."""
        found: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if self.names >= MOST_NAMES:
                    self.full = True
                    break
                self.names += 1
                found.append(entry)
        return found

    def _file(self, path: str) -> CheckpointEntry | None:
        """A file's time and size; None of one that went away."""
        with suppress(OSError):
            stat = os.lstat(path)
            self.files += 1
            return CheckpointEntry(path, stat.st_mtime, stat.st_size)
        return None


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


_LOG = logging.getLogger("foreshock.sidecar")
_INTERVAL_S = 60.0
# Without a mark of its format a save counts as whole once it was quiet for so long.
_QUIET_S = 120.0


@dataclass(frozen=True, slots=True)
class _SaveReport:
    """What was last reported of a save: `time_s` is its folder's own time then."""

    whole: bool
    begin_s: float
    end_s: float
    size: int
    time_s: float


class CheckpointsCollector:
    """One directory."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is DIR, with options behind `#`.

        Raises:
            SourceError: no directory, or an unknown option.
        """
        self._spec = f"checkpoints:{rest}"
        folder, options = split_options(self._spec, rest, ("run",))
        if not folder:
            raise SourceError(f"{self._spec}: names no directory: write checkpoints:DIR")
        self._root = str(Path(folder).absolute())
        self._run = options.get("run", [None])[-1]
        self._node = settings.node
        self._interval_s = settings.interval_s or _INTERVAL_S
        self.wake = Wake()
        self._due = 0.0
        self._reported: dict[str, _SaveReport] = {}
        self._left_out_reported = False

    @property
    def spec(self) -> str:
        """What names it."""
        return self._spec

    def open(self, position: Position | None) -> None:
        """Take up what was reported; the first look is at once.

        Raises:
            SourceError: the directory cannot be listed.
        """
        try:
            os.scandir(self._root).close()
        except OSError as error:
            raise SourceError(f"{self._spec}: {error.strerror}: let the sidecar's user list the directory") from error
        reported: Mapping[str, Any] = (position or {}).get("told") or {}
        self._reported = {str(place): _SaveReport(*values) for place, values in reported.items()}
        self._due = time.monotonic()

    def collect(self, wait_s: float) -> CollectorTurn:
        """The saves that are new, or whole since."""
        if not self.wake.wait_until(self._due, wait_s):
            return CollectorTurn()
        self._due = time.monotonic() + self._interval_s
        return self._look(time.time())

    def close(self) -> None:
        """Nothing is held open."""

    def _look(self, now_s: float) -> CollectorTurn:
        scan = CheckpointScan(self._root)
        entries: list[CheckpointEntry] = []
        read: dict[str, tuple[int, float]] = {}  # of each save that was read: files left out, its folder's time
        places = scan.saves()
        for place in places:
            time_s, reported = _mtime_s(place), self._reported.get(place)
            if reported is not None and reported.whole and reported.time_s == time_s:
                entries.append(_kept(place, reported))
                continue
            found, skipped = scan.read(place)
            entries += found
            read[place] = (skipped, time_s)
        for folder in sorted({place.rpartition("/")[0] for place in places}):
            entries += scan.trackers(folder)
        self._reported = {place: self._reported[place] for place in places if place in self._reported}
        events = self._news(saves_of(entries, self._root), read, now_s)
        self._say_left_out(scan)
        position = {"told": {place: list(astuple(reported)) for place, reported in self._reported.items()}}
        return CollectorTurn(events=tuple(events), position=position, lines=scan.files)

    def _news(
        self, saves: Sequence[CheckpointSave], read: Mapping[str, tuple[int, float]], now_s: float
    ) -> list[Event]:
        """The events of the saves whose state has changed."""
        events = []
        for save in saves:
            place = f"{save.folder}/{save.name}"
            if place not in read:
                continue
            skipped, time_s = read[place]
            whole = save.whole is True and (save.marked or now_s - save.end_s >= _QUIET_S)
            before = self._reported.get(place)
            self._reported[place] = _SaveReport(whole, save.begin_s, save.end_s, save.size, time_s)
            if before is None or (before.whole, before.begin_s) != (whole, save.begin_s):
                events.append(self._event(save, place, whole, skipped))
        return events

    def _event(self, save: CheckpointSave, place: str, whole: bool, skipped: int) -> Event:
        reported = save if whole or save.whole is not True else replace(save, whole=None)
        event = event_of(reported, self._run, self._node, None)
        if skipped:
            event = replace(event, attributes={**event.attributes, "files_skipped": skipped})
        return number(event, f"{self._spec}:{place}:{save.begin_s}:{whole}")

    def _say_left_out(self, scan: CheckpointScan) -> None:
        if scan.full and not self._left_out_reported:
            text = (
                "source %s: a look ended after %d names and %d files: name the folder of one run, or keep fewer saves"
            )
            _LOG.warning(text, self._spec, scan.names, scan.files)
        self._left_out_reported = scan.full


def _mtime_s(place: str) -> float:
    try:
        return os.lstat(place).st_mtime
    except OSError:
        return 0.0


def _kept(place: str, reported: _SaveReport) -> CheckpointEntry:
    """What stands for a save that was reported as whole: others are compared with its size."""
    path = f"{place}/kept" if Path(place).is_dir() else place
    return CheckpointEntry(path, reported.end_s, reported.size)

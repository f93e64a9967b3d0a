"""`checkpoints:DIR[#run=NAME]`: looks at a checkpoint directory every minute and reports new saves.

    checkpoints:/lustre/ckpt/run-7           checkpoints:/lustre/ckpt#run=llm-70b

DIR holds the saves of one run, or folders that do, two levels down at most. A save is reported when it has begun,
and again when it is whole; then it is not read again while its folder's time stays the same. The newest save of a
folder that is not whole and at rest is reported as torn, beside the newest that is whole. A scan reads a bounded number
of files; `files_skipped` of a save, or a line in the log, reports what it left out.
"""

import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from collectors.collector import (
    CollectorTurn,
    IntervalLooks,
    Position,
    SourceError,
    SourceSettings,
    check_listable,
    split_options,
)
from collectors.decoder import number
from parsers.dumps.checkpoint_files import FileContent, content_of, most_read, tells
from parsers.formats.checkpoints import (
    TRACKERS,
    CheckpointEntry,
    CheckpointSave,
    event_of,
    iteration_in,
    run_of,
    saves_of,
)
from store.records.event import Event

# One look at a checkpoint directory, at a bounded cost: such directories are on file servers that all share.
#
#     scan = Scan("/lustre/ckpt/run-7")
#     for place in scan.saves(): entries, skipped = scan.read(place)
#
# A look reads MOST_NAMES names and the times of MOST_FILES files, of one save FILES_OF_ONE, and opens MOST_OPENED that
# have changed, MOST_READ bytes of them; a save that is left over is read by the next one, first. Links are not
# followed, and what is no plain file is not read.

MOST_NAMES = 20_000
MOST_FILES = 10_000
FILES_OF_ONE = 2_000
MOST_OPENED = 2_000
# What a look reads of files that have changed, and keeps of the names of others: of one save, and in all, bytes.
MOST_READ = 256 * 1024 * 1024
MOST_KEPT_OF_ONE, MOST_KEPT = 2 * 1024 * 1024, 16 * 1024 * 1024
_NAME_BYTES = 100  # of a name besides its letters
_DEPTH = 2  # folders between the directory and the saves
_INNER_DEPTH = 4  # folders within a save
_MAX_TRACKER_BYTES = 256


class CheckpointScan:
    """A look: `names` and `files` count what it has read, `full` whether it left something out, `left` which saves.

    `contents` = by path the time, size and content of what was opened, with those of `known` that are as they were.
    """

    def __init__(self, root: str, known: Mapping[str, tuple[float, int, FileContent]] | None = None) -> None:
        self._root = root
        self.names = self.files = 0
        self.full = False
        self.left: set[str] = set()
        self._known = known or {}
        self._opened = self._read = self._kept = self._kept_of_one = 0
        self.contents: dict[str, tuple[float, int, FileContent]] = {}

    def saves(self, waited: Mapping[str, int] = MappingProxyType({})) -> list[str]:
        """The paths of what is named as a save, the newest iterations first: where not all can be read, they count.

        Args:
            waited: how many looks left a save over: who has waited longest goes first.
        """
        found = list(self._saves(self._root, _DEPTH))
        return sorted(found, key=lambda path: (-waited.get(path, 0), -(iteration_in(path.rpartition("/")[2]) or 0)))

    def read(self, place: str) -> tuple[list[CheckpointEntry], int]:
        """The files of one save, and how many were left out; none of a save that is `left`."""
        entries, skipped = self._files(place)
        if skipped:  # nobody can say then which files are missing
            return entries, skipped
        self._kept_of_one = 0
        told = [self._with_content(entry) for entry in entries]
        known = [one for one in told if one is not None]
        if len(known) < len(told):  # what was not opened may be what is cut short
            self.full = True
            self.left.add(place)
            return [], 0
        return known, 0

    def _files(self, place: str) -> tuple[list[CheckpointEntry], int]:
        if not _is_dir(place):
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
            path = f"{folder}/{name}"
            with suppress(OSError), _plain_file(path) as file:
                text = file.read(_MAX_TRACKER_BYTES).decode("utf-8", "replace")
                status = os.fstat(file.fileno())
                found.append(CheckpointEntry(path, status.st_mtime, status.st_size, text=text))
        return found

    def _with_content(self, entry: CheckpointEntry) -> CheckpointEntry | None:
        """The entry with what its file tells, where it is one to open; None where this look may open no more."""
        name = entry.path.rpartition("/")[2]
        if not tells(name):
            return entry
        known = self._known.get(entry.path)
        if known is None or known[:2] != (entry.mtime_s, entry.size):
            if self._opened >= MOST_OPENED or self._read >= MOST_READ:
                return None
            self._opened += 1
            known = (entry.mtime_s, entry.size, self._content(entry, name))
        kept = sum(len(one) + _NAME_BYTES for one in known[2].named)
        if self._kept + kept > MOST_KEPT:
            return None
        if self._kept_of_one + kept > MOST_KEPT_OF_ONE:  # it names more files than a save has: it tells of itself alone
            known, kept = (*known[:2], FileContent(cut=known[2].cut)), 0
        self._kept, self._kept_of_one = self._kept + kept, self._kept_of_one + kept
        self.contents[entry.path] = known
        return replace(entry, content=known[2])

    def _content(self, entry: CheckpointEntry, name: str) -> FileContent:
        """What a file tells; nothing where it cannot be read, whatever is in it."""
        try:
            with _plain_file(entry.path) as file:
                found = content_of(name, file, entry.size)
                self._read += min(file.tell(), most_read(name, entry.size))
                return found
        except Exception as error:  # noqa: BLE001  # a user wrote it: it may end no look at the saves of others
            _LOG.info("%s is not judged by what it holds: %s", entry.path, type(error).__name__)
            self._read += most_read(name, entry.size)
            return FileContent()

    def _saves(self, folder: str, depth: int) -> Iterator[str]:
        for entry in self._list(folder):
            if entry.is_symlink():
                continue
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
        """A file's time and size; None of one that went away, and of a pipe or a device."""
        with suppress(OSError):
            status = os.lstat(path)
            self.files += 1
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                return CheckpointEntry(path, status.st_mtime, status.st_size)
        return None


def _plain_file(path: str) -> BinaryIO:
    """A file of a folder into which a job's user writes, open for reading.

    Raises:
        OSError: it is a link, a pipe or a device, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")


def _is_dir(place: str) -> bool:
    """Whether it is a folder itself: a link may lead into one that its owner may not see."""
    try:
        return stat.S_ISDIR(os.lstat(place).st_mode)
    except OSError:
        return False


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


class CheckpointsCollector(IntervalLooks):
    """One directory."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is DIR, with options behind `#`.

        Raises:
            SourceError: no directory, or an unknown option.
        """
        super().__init__(f"checkpoints:{rest}", settings.interval_s or _INTERVAL_S)
        folder, options = split_options(self.spec, rest, ("run",))
        if not folder:
            raise SourceError(f"{self.spec}: names no directory: write checkpoints:DIR")
        self._root = str(Path(folder).absolute())
        self._run = options.get("run", [None])[-1]
        self._node = settings.node
        self._reported: dict[str, _SaveReport] = {}
        self._contents: dict[str, tuple[float, int, FileContent]] = {}
        self._waited: dict[str, int] = {}  # the saves that the last looks did not come to, and how many those were
        self._torn: dict[str, float] = {}  # of each save that was reported as torn: its last file's time
        self._files: dict[str, int] = {}  # how many files a whole save had
        self._left_out_reported = False

    def open(self, position: Position | None) -> None:
        """Take up what was reported; the first look is at once.

        Raises:
            SourceError: the directory cannot be listed.
        """
        check_listable(self.spec, self._root)
        reported: Mapping[str, Any] = (position or {}).get("told") or {}
        self._reported = {str(place): _SaveReport(*values) for place, values in reported.items()}
        self._torn = dict((position or {}).get("torn") or {})
        self._files = dict((position or {}).get("files") or {})
        self.due_s = time.monotonic()

    def look(self, now: datetime) -> CollectorTurn:
        """The saves that are new, or whole since."""
        now_s = now.timestamp()
        scan = CheckpointScan(self._root, self._contents)
        entries: list[CheckpointEntry] = []
        read: dict[str, tuple[int, float]] = {}  # of each save that was read: files left out, its folder's time
        places = scan.saves(self._waited)
        for place in places:
            time_s, reported = _mtime_s(place), self._reported.get(place)
            if reported is not None and reported.whole and reported.time_s == time_s:
                entries.append(_entry_of(place, reported))
                continue
            found, skipped = scan.read(place)
            if place not in scan.left:
                entries += found
                read[place] = (skipped, time_s)
        for folder in sorted({place.rpartition("/")[0] for place in places}):
            entries += scan.trackers(folder)
        self._reported = {place: self._reported[place] for place in places if place in self._reported}
        saves = saves_of(entries, self._root)
        # A torn save takes one from a run. Where the run is known by its folder's name, which its user chooses, and
        # two folders bear that name, one of them may be another user's: neither is reported as torn; nor any where the
        # names ran out, and the other folder may not have been seen.
        runs = Counter(run_of(folder) for folder in {place.rpartition("/")[0] for place in places})
        doubtful = set() if self._run is not None else {run for run, folders in runs.items() if folders > 1}
        is_cut = self._run is None and scan.names >= MOST_NAMES
        certain = [save for save in saves if not is_cut and save.run not in doubtful]
        events = self._news(saves, read, now_s) + self._torn_news(certain, read, now_s)
        self._contents = scan.contents
        self._waited = {place: self._waited.get(place, 0) + 1 for place in scan.left}
        self._say_left_out(scan)
        told = {place: list(astuple(reported)) for place, reported in self._reported.items()}
        position = {"told": told, "torn": self._torn, "files": self._files}
        return CollectorTurn(events=tuple(events), position=position, lines=scan.files)

    def _news(
        self, saves: Sequence[CheckpointSave], read: Mapping[str, tuple[int, float]], now_s: float
    ) -> list[Event]:
        """The events of the saves whose state has changed."""
        events = []
        for save in saves:
            place = _place(save)
            if place not in read:
                continue
            skipped, time_s = read[place]
            whole = save.whole is True and (save.marked or now_s - save.end_s >= _QUIET_S)
            before = self._reported.get(place)
            self._reported[place] = _SaveReport(whole, save.begin_s, save.end_s, save.size, time_s)
            if before is None or (before.whole, before.begin_s) != (whole, save.begin_s):
                events.append(self._event(save, place, whole, skipped))
        return events

    def _torn_news(
        self, saves: Sequence[CheckpointSave], read: Mapping[str, tuple[int, float]], now_s: float
    ) -> list[Event]:
        """The newest save of each folder, where its files show that it is torn and nothing writes to it any more."""
        newest = {save.folder: save for save in saves}  # they are sorted by their ends
        whole = {save.folder: save for save in saves if save.whole and self._reported[_place(save)].whole}
        files = {_place(save): save.files for save in whole.values() if _place(save) in read}
        self._files = {place: self._files[place] for place in self._files if place in self._reported} | files
        torn = {
            _place(save): save
            for save in newest.values()
            if save.whole is False
            and save.marked
            and not read.get(_place(save), (1, 0.0))[0]
            and now_s - save.end_s >= _QUIET_S
        }
        news = [save for place, save in torn.items() if self._torn.get(place) != save.end_s]
        self._torn = {place: save.end_s for place, save in torn.items()}
        return [self._torn_event(save, whole.get(save.folder)) for save in news]

    def _torn_event(self, save: CheckpointSave, whole: CheckpointSave | None) -> Event:
        usual = 0 if whole is None else self._files.get(_place(whole), 0)
        lack = save.lack if " of " in save.lack or usual <= save.files else f"{save.files} of {usual} files"
        event = event_of(save, self._run, self._node, None)
        text = f"save {save.iteration} is torn: {lack or f'{save.files} files'}; newest whole: "
        fields = {key: value for key, value in event.attributes.items() if key != "duration_ms"}
        if whole is None:
            text += "none in this directory"
        else:
            older_s = max(0.0, save.begin_s - whole.end_s)
            text += f"{whole.iteration}, {older_s / 60:.0f} min older"
            fields |= {"whole_iteration": whole.iteration, "older_s": round(older_s, 3)}
        torn = replace(
            event,
            time=datetime.fromtimestamp(save.end_s + _QUIET_S, UTC),
            kind="checkpoint_torn",
            severity="warning",
            message=text,
            attributes=fields,
        )
        return number(torn, f"{self.spec}:{_place(save)}:{save.end_s}:torn")

    def _event(self, save: CheckpointSave, place: str, whole: bool, skipped: int) -> Event:
        reported = save if whole or save.whole is not True else replace(save, whole=None)
        event = event_of(reported, self._run, self._node, None)
        if skipped:
            event = replace(event, attributes={**event.attributes, "files_skipped": skipped})
        return number(event, f"{self.spec}:{place}:{save.begin_s}:{whole}")

    def _say_left_out(self, scan: CheckpointScan) -> None:
        if scan.full and not self._left_out_reported:
            text = (
                "source %s: a look ended after %d names and %d files, %d saves are left for the next one: "
                "name the folder of one run, or keep fewer saves"
            )
            _LOG.warning(text, self.spec, scan.names, scan.files, len(scan.left))
        self._left_out_reported = scan.full


def _place(save: CheckpointSave) -> str:
    return f"{save.folder}/{save.name}"


def _mtime_s(place: str) -> float:
    try:
        return os.lstat(place).st_mtime
    except OSError:
        return 0.0


def _entry_of(place: str, reported: _SaveReport) -> CheckpointEntry:
    """What stands for a save that was reported as whole: others are compared with its size."""
    path = f"{place}/kept" if _is_dir(place) else place
    return CheckpointEntry(path, reported.end_s, reported.size)

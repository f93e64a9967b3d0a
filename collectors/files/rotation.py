"""Where a log's lines went when it was rotated: the old files beside it, by the names that rotations give.

    kern.log.1  kern.log.2.gz                         logrotate
    kern.log-20250301  kern-20250301.log.zst          its dateext, and its extension
    kern.log.2025-03-01_04-05-06                      Python's handlers

A file is the one that was read where it holds the same bytes before the position. By its inode it is found at once;
a copy (copytruncate) and an archive have another one, so their bytes alone tell.
"""

import errno
import os
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from collectors.collector import SourceError
from collectors.files.content import MARK_BYTES, PACKED_SUFFIXES, FilePosition, mark_of, open_content

# A file server that forgot a file, or a folder that is not mounted, has none as well.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
# With fewer bytes before the position a copy might be taken for one by chance: many logs begin alike.
_LEAST_BYTES = 64
_MOST_FILES = 1000
# Below these the kernel makes what is read when it is read: such files have no length, or one that says nothing.
_MADE_UP = frozenset({("proc",), ("sys",)})
# So many copies and archives are searched for the bytes before a position; the newest ones first.
_MOST_SEARCHED = 4
_PACKED = f"(?:{'|'.join(map(re.escape, PACKED_SUFFIXES))})?"
_DATE = r"(?P<date>\d{4}-?\d\d-?\d\d[\d_T:.\-]{0,24})"
_NUMBER = r"(?P<number>\d{1,4})"
# What logs end with before a rotation adds to it.
_LOGS = (".log", ".out", ".err", ".txt")
# kern.log.1  kern.log-20250301, and kern.1.log  kern-20250301.log: `kern-1.log` is more often another log.
_AFTER = re.compile(rf"(?P<name>.+?)[.\-_](?:{_DATE}|{_NUMBER}){_PACKED}", re.ASCII | re.DOTALL)
_WITHIN = re.compile(
    rf"(?P<stem>.+?)(?:[.\-_]{_DATE}|\.{_NUMBER})(?P<suffix>\.[A-Za-z]{{1,8}}?){_PACKED}", re.ASCII | re.DOTALL
)


def status_of(path: Path) -> os.stat_result | None:
    """What is at a path that is to be followed; None where nothing is.

    Raises:
        SourceError: it is nothing that can be followed, or may not be looked at.
    """
    try:
        status = path.stat()
    except PermissionError as error:
        raise SourceError(f"may not look at {path}: let the sidecar's user into its folder") from error
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return None
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path} is no regular file: only a file can be read again from where one stood")
    if path.resolve().parts[1:2] in _MADE_UP:
        raise SourceError(f"{path} does not grow: read it with exec:FORMAT:cat {path}, the kernel's log with kmsg")
    return status


@dataclass(frozen=True, slots=True)
class RotatedFiles:
    """One old file: `number` 1 is the newest, `date` sorts as text; a name has one of the two."""

    path: Path
    inode: int
    device: int
    size: int
    written_ns: int
    number: int | None = None
    date: str | None = None

    @property
    def packed(self) -> bool:
        """Whether it is compressed."""
        return self.path.suffix in PACKED_SUFFIXES

    def newer_than(self, other: "RotatedFiles") -> bool:
        """Whether it was rotated after another one: by their names, and never against what the disk says."""
        if self.written_ns < other.written_ns:
            return False
        if self.number is not None and other.number is not None:
            return self.number < other.number
        if self.date is not None and other.date is not None:
            return self.date > other.date
        return self.written_ns > other.written_ns


def rotations(path: Path) -> list[RotatedFiles]:
    """The old files of a log, the last written first; none where its folder cannot be read."""
    found: list[RotatedFiles] = []
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                match = _rotation_of(entry.name, {path.name})
                if match and entry.is_file() and len(found) < _MOST_FILES:
                    found.append(_rotated(entry, match))
    except OSError:
        return []
    return sorted(found, key=lambda file: (-file.written_ns, file.path.name))


def is_rotation(name: str, names: Collection[str]) -> bool:
    """Whether a name is a rotated form of another one or of a log that may be gone, or says that it is compressed."""
    if name.endswith(PACKED_SUFFIXES) or _rotation_of(name, names):
        return True
    after = _AFTER.fullmatch(name)
    return after is not None and after["name"].endswith(_LOGS)


def _rotation_of(name: str, names: Collection[str]) -> re.Match[str] | None:
    if (match := _AFTER.fullmatch(name)) and match["name"] in names:
        return match
    if (match := _WITHIN.fullmatch(name)) and match["stem"] + match["suffix"] in names:
        return match
    return None


def _rotated(entry: "os.DirEntry[str]", match: re.Match[str] | None = None) -> RotatedFiles:
    status = entry.stat()
    number = None if match is None or match["number"] is None else int(match["number"])
    date = None if match is None else match["date"]
    return RotatedFiles(
        Path(entry.path), status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns, number, date
    )


def _with_inode(folder: Path, inode: int) -> RotatedFiles | None:
    """The file of this inode in a folder, whatever its name."""
    try:
        with os.scandir(folder) as entries:
            return next((_rotated(entry) for entry in entries if entry.inode() == inode and entry.is_file()), None)
    except OSError:
        return None


def same_file(path: Path, position: FilePosition) -> bool:
    """Whether a path holds the file of a position. The device number may differ after a reboot."""
    try:
        status = path.stat()
        return status.st_ino == position.inode and status.st_size >= position.offset and holds(path, position)
    except OSError:
        return False


def holds(path: Path, position: FilePosition) -> bool:
    """Whether a file's content has the bytes that stand before a position."""
    start = max(0, position.offset - MARK_BYTES)
    try:
        content = open_content(path)
    except OSError:
        return False
    try:
        before = content.read_at(start, position.offset - start)
    except (OSError, ValueError):  # damaged: not what was read
        return False
    finally:
        content.close()
    return len(before) == position.offset - start and mark_of(before) == position.mark


def find(path: Path, position: FilePosition) -> RotatedFiles | None:
    """The old file that the position is of: itself, else a copy or an archive of it."""
    old = rotations(path)
    renamed = next((file for file in old if file.inode == position.inode), None) or _with_inode(
        path.parent, position.inode
    )
    if renamed is not None and same_file(renamed.path, position):
        return renamed
    if position.offset < _LEAST_BYTES:
        return None
    others = [file for file in old if file.packed or file.size >= position.offset]
    return next((file for file in others[:_MOST_SEARCHED] if holds(file.path, position)), None)


def newer(path: Path, than: RotatedFiles) -> list[RotatedFiles]:
    """Files that were rotated after one that was read: nobody has seen them. The oldest first."""
    return [file for file in reversed(rotations(path)) if file.path != than.path and file.newer_than(than)]

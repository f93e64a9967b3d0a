"""Hearing that files change, by Linux's inotify: a file that is quiet costs nothing. No content, only whose turn it is.

    changes = Changes(wake, pause_s=0.5)
    seen = changes.watch_file(path, "a")       # None: not to be had here, so poll
    changes.wait(2.0)                          # {"a"} as soon as it was written to

It does not see what other machines write (NFS and the like: only file systems that are known to tell are watched) nor
what is written through a mapping, and its watches are limited: it saves polling, it never replaces the look itself.
Sources: inotify(7), statfs(2), linux/magic.h.
"""

import ctypes
import errno
import logging
import os
import struct
import time
from pathlib import Path

from collectors.collector import Wake

_LOG = logging.getLogger("foreshock.sidecar")
_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _MOVE_SELF = 0x2, 0x40, 0x80, 0x100, 0x200, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_OF_FILES = _MODIFY | _MOVE_SELF
_OF_FOLDERS = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name behind it
_BUFFER_BYTES = 16 * 1024
# ext2 to ext4, xfs, btrfs, tmpfs, ramfs, overlayfs, f2fs, zfs, bcachefs: everything that is written there is seen here.
_TELLING = frozenset(
    {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E}
)
_LIBC = ctypes.CDLL(None, use_errno=True)


class Changes:
    """One inotify descriptor for any number of files; not safe for several threads."""

    def __init__(self, wake: Wake, pause_s: float) -> None:
        """`pause_s`: two waits end at least so far apart, so that what comes together is read together."""
        self.wake = wake
        self._pause_s = pause_s
        self._ended = float("-inf")
        self._busy = False  # the last two waits heard something soon after each other
        self._descriptor = -1
        self._whose: dict[int, list[tuple[str, str | None]]] = {}  # of each watch: owners, and the name they want
        self._reported = False

    def watch_file(self, path: Path, owner: str) -> int | None:
        """Hear of what is written to a file, and of its renaming; None where that cannot be heard."""
        return self._watch(path, _OF_FILES, owner, None)

    def watch_folder(self, path: Path, owner: str, name: str | None = None) -> int | None:
        """Hear of files that come and go in a folder, or of that name alone."""
        return self._watch(path, _OF_FOLDERS, owner, name)

    def sees(self, watch: int | None) -> bool:
        """Whether a watch is still there: with its file it goes."""
        return watch in self._whose

    def leave(self, watch: int | None, owner: str) -> None:
        """One owner needs a watch no more."""
        if watch is None or watch not in self._whose:
            return
        self._whose[watch] = [pair for pair in self._whose[watch] if pair[0] != owner]
        if not self._whose[watch]:
            del self._whose[watch]
            _LIBC.inotify_rm_watch(self._descriptor, watch)

    def wait(self, wait_s: float) -> set[str]:
        """The owners of what changed, as soon as something did; at most `wait_s`, and no longer than to the wake."""
        now = time.monotonic()
        end = now + wait_s
        if self._busy:  # something will be there: sleep once, and not until it comes and then to the pause's end
            self.wake.wait(min(wait_s, self._ended + self._pause_s - now))
            now = time.monotonic()
        touched: set[str] = set()
        while not touched and not self.wake.is_set and now < end:
            descriptors = () if self._descriptor < 0 else (self._descriptor,)
            if self.wake.wait(end - now, *descriptors):
                if (pause_s := self._ended + self._pause_s - time.monotonic()) > 0:
                    self.wake.wait(pause_s)
                touched = self._touched(os.read(self._descriptor, _BUFFER_BYTES))
            now = time.monotonic()
        self._busy = bool(touched) and now < self._ended + 2 * self._pause_s
        self._ended = now
        return touched

    def close(self) -> None:
        """Let go of every watch; a new one may be asked for."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._whose.clear()

    def _watch(self, path: Path, mask: int, owner: str, name: str | None) -> int | None:
        place = os.fsencode(path)
        if not reports_writes(place):
            return None
        if self._descriptor < 0:
            self._descriptor = _LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        watch: int = _LIBC.inotify_add_watch(self._descriptor, place, mask) if self._descriptor >= 0 else -1
        if watch < 0:
            self._tell(ctypes.get_errno())
            return None
        owners = self._whose.setdefault(watch, [])
        if (owner, name) not in owners:
            owners.append((owner, name))
        return watch

    def _tell(self, number: int) -> None:
        if number in (errno.EMFILE, errno.ENFILE, errno.ENOSPC) and not self._reported:
            self._reported = True
            _LOG.warning("this user's inotify is used up (sysctl fs.inotify): files are looked at again and again")

    def _touched(self, data: bytes) -> set[str]:
        touched: set[str] = set()
        at = 0
        while at < len(data):
            watch, mask, _cookie, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            name = os.fsdecode(data[at - length : at].rstrip(b"\0")) if length else None
            if mask & _OVERFLOW:
                touched |= {owner for owners in self._whose.values() for owner, _wanted in owners}
            touched |= {
                owner for owner, wanted in self._whose.get(watch, ()) if wanted in (None, name) or mask & _IGNORED
            }
            if mask & _IGNORED:
                self._whose.pop(watch, None)
        return touched


class PathWatch:
    """What is heard of one path: of its name in its folder, and of the file that is read there."""

    def __init__(self, changes: Changes, path: Path) -> None:
        self._changes = changes
        self._path = path
        self._owner = str(path)
        self._folder: int | None = None
        self._file: int | None = None

    def hear_folder(self) -> None:
        """Be told of files that come and go at the path, from now on; a folder that was not there is tried again."""
        if not self._changes.sees(self._folder):
            self._folder = self._changes.watch_folder(self._path.parent, self._owner, self._path.name)

    def hear_file(self) -> None:
        """Be told of what is written to the file that is at the path now. Call it before reading: nothing is missed."""
        self._changes.leave(self._file, self._owner)
        self._file = self._changes.watch_file(self._path, self._owner)

    def is_heard(self, reading: bool) -> bool:
        """Whether there is no need to look; `reading`: a file is read there."""
        return self._changes.sees(self._folder) and (not reading or self._changes.sees(self._file))

    def leave(self) -> None:
        """Hear no more of it."""
        for watch in (self._folder, self._file):
            self._changes.leave(watch, self._owner)


def reports_writes(place: bytes) -> bool:
    """Whether the file system of a place reports every write to it."""
    buffer = ctypes.create_string_buffer(256)  # a struct statfs has 120 bytes; its first word is the type
    if _LIBC.statfs(place, buffer) != 0:
        return False
    (kind,) = struct.unpack_from("l", buffer)
    return kind & 0xFFFFFFFF in _TELLING

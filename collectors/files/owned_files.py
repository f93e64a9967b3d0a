"""Files of a folder into which a job's user writes: no links, no devices, and nobody's but the user's whose they are.

A folder that every user may write to (/tmp, /dev/shm) holds what anybody likes: there, only files of the folder's own
owner or of the user that the SPEC names (`#user=train`) are read. Others are refused, and counted as `writer`.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collectors.collector import SourceError, check_listable

# Names of a folder that are looked at.
MOST_NAMES = 20_000


@dataclass(frozen=True, slots=True)
class OwnedFile:
    """A file that may be read."""

    path: str
    name: str
    uid: int
    size: int
    mtime_s: float
    inode: int


class OwnedFolder:
    """One folder, and whose files there are read."""

    def __init__(self, spec: str, path: Path, user: str | None) -> None:
        """`user` is a name or a number; None for the folder's owner, or anybody where not every user may write.

        Raises:
            SourceError: there is no such user.
        """
        self._spec, self._path = spec, path
        self._uid = None if user is None else _uid_of(spec, user)
        self.refused = 0  # files of the last look that are somebody else's

    def check(self) -> None:
        """Say at the start what is wrong.

        Raises:
            SourceError: the folder cannot be listed.
        """
        check_listable(self._spec, self._path)

    def files(self) -> Iterator[OwnedFile]:
        """The files that may be read now, in no order."""
        self.refused = 0
        allowed = self._allowed()
        with suppress(OSError), os.scandir(self._path) as entries:
            for count, entry in enumerate(entries):
                if count >= MOST_NAMES:
                    return
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    if allowed is not None and status.st_uid not in allowed:
                        self.refused += 1
                        continue
                    yield OwnedFile(
                        entry.path, entry.name, status.st_uid, status.st_size, status.st_mtime, status.st_ino
                    )

    def _allowed(self) -> frozenset[int] | None:
        if self._uid is not None:
            return frozenset((self._uid,))
        try:
            status = self._path.stat()
        except OSError:
            return frozenset()
        return frozenset((status.st_uid,)) if status.st_mode & stat.S_IWOTH else None


def read_owned(file: OwnedFile, most: int) -> bytes | None:
    """The content of a file, at most so much; None where it is another one than was listed, or went away."""
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_ino) != (file.uid, file.inode) or not stat.S_ISREG(status.st_mode):
            return None
        return opened.read(most)


def _uid_of(spec: str, user: str) -> int:
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise SourceError(
            f"{spec}: there is no user {user!r} on this node: name the one that the job runs as"
        ) from error

"""A file that is given up on a full disk: freeing space takes a little of it, or a name of a file, first."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LEAST_BYTES = 64 * 1024
_BLOCK = 4096


class Reserve:
    """Best effort: where the disk was full from the beginning there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = _LEAST_BYTES

    def take(self, least_bytes: int = 0) -> None:
        """Have at least so much in reserve from now on; less where there is not so much room."""
        self._size = max(self._size, least_bytes)
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(descriptor, self._size)
            finally:
                os.close(descriptor)

    def spend(self, write: Callable[[], T]) -> T:
        """Do what writes a little; where that finds no room, give up the reserve for it.

        Raises:
            OSError: there is no room even so.
        """
        try:
            return write()
        except OSError:
            self._path.unlink(missing_ok=True)
        try:
            return write()
        finally:
            self.take()


def _allocate(descriptor: int, size: int) -> None:
    for less in range(size, 0, -max(_BLOCK, size // 16)):
        with suppress(OSError):
            os.posix_fallocate(descriptor, 0, less)
            break

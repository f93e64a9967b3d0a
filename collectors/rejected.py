"""What the server refused for good: kept on disk with its reason, for a person to look at."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from collectors.losses import Queue

_MOST_BYTES = 16 * 1024 * 1024


class RejectedFile:
    """`rejected.jsonl`: one line an item, `{"queue": ..., "reason": ..., "item": ...}`; one older file is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def park(self, queue: Queue, item: Any, reason: str) -> None:
        """Put one item aside, durable on return.

        Raises:
            OSError: the disk is full or broken; the file is as it was.
        """
        size = self._path.stat().st_size if self._path.exists() else 0
        if size > _MOST_BYTES:
            self._path.replace(self._path.with_suffix(".jsonl.old"))
            size = 0
        line = orjson.dumps({"queue": queue, "reason": reason, "item": item}, option=orjson.OPT_APPEND_NEWLINE)
        with self._path.open("ab", buffering=0) as file:
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(size)
                raise

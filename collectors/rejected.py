"""What the server refused for good: kept on disk with its reason, for a person to look at."""

from pathlib import Path
from typing import Any

import orjson

from collectors.spool import Queue

_MOST_BYTES = 16 * 1024 * 1024


class RejectedFile:
    """`rejected.jsonl`: one line an item, `{"queue": ..., "reason": ..., "item": ...}`; one older file is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def park(self, queue: Queue, item: Any, reason: str) -> None:
        """Put one item aside."""
        if self._path.exists() and self._path.stat().st_size > _MOST_BYTES:
            self._path.replace(self._path.with_suffix(".jsonl.old"))
        record = {"queue": queue, "reason": reason, "item": item}
        with self._path.open("ab") as file:
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

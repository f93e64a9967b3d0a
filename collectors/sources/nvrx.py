"""`nvrx:DIR[#run=NAME]`: the cycle_info files that NVRx's launcher writes, looked at every 10 s.

    nvrx:/lustre/run-7/nvrx            the folder of --ft-cycle-info-dir

A file holds one object, is written anew when its cycle ends, and ends without a line end: it is read as a whole, when
its time or size has changed. Events keep their ids however often a file is read.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

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
from parsers.registry import make_parser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

_INTERVAL_S = 10.0
# A folder may hold the cycles of a year; the newest are looked at.
MOST_FILES = 2_000
_MAX_BYTES = 1024 * 1024


class CycleFilesCollector(IntervalLooks):
    """One folder."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is DIR, with options behind `#`.

        Raises:
            SourceError: no directory, or an unknown option.
        """
        super().__init__(f"nvrx:{rest}", settings.interval_s or _INTERVAL_S)
        folder, options = split_options(self.spec, rest, ("run",))
        if not folder:
            raise SourceError(f"{self.spec}: names no directory: write nvrx:DIR, the one of --ft-cycle-info-dir")
        self._folder = Path(folder)
        self._run = options.get("run", [None])[-1]
        self._node = settings.node
        self._seen: dict[str, list[float]] = {}  # of each file: its time and size when it was read

    def open(self, position: Position | None) -> None:
        """Take up what was read; the first look is at once.

        Raises:
            SourceError: the directory cannot be listed.
        """
        check_listable(self.spec, self._folder)
        seen: Mapping[str, Any] = (position or {}).get("seen") or {}
        self._seen = {str(name): [float(value) for value in values] for name, values in seen.items()}
        self.due_s = time.monotonic()

    def look(self, _now: datetime) -> CollectorTurn:
        """What files say that were written since."""
        events: list[Event] = []
        broken: list[ParseError] = []
        seen: dict[str, list[float]] = {}
        for name, state in self._files():
            seen[name] = state
            if self._seen.get(name) == state:
                continue
            found, errors = self._read(name)
            events += found
            broken += errors
            if errors:  # it is being written: read it again
                seen.pop(name)
        self._seen = seen
        return CollectorTurn(tuple(events), position={"seen": seen}, lines=len(events), errors=len(broken))

    def _files(self) -> list[tuple[str, list[float]]]:
        """The cycles' files, the newest last; what is being written and the link to the present one are none."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith("cycle_info.") and entry.name.rpartition(".")[2].isdigit():
                    with suppress(OSError):
                        stat = entry.stat()
                        found.append((entry.name, [stat.st_mtime, float(stat.st_size)]))
        return sorted(found, key=lambda one: (one[1][0], one[0]))[-MOST_FILES:]

    def _read(self, name: str) -> tuple[list[Event], list[ParseError]]:
        broken: list[ParseError] = []
        parser = make_parser("nvrx", Context(node=self._node, run=self._run, trust="user"))
        try:
            with (self._folder / name).open("rb") as file:
                text = file.read(_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return [], []
        found = parse(parser, text.split("\n"), lambda _line, error: broken.append(error))
        return [number(event, f"{self.spec}:{name}:{event.kind}") for event in found], broken

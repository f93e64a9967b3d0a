"""`ranks:DIR[#user=NAME&stall_s=S]`: what the training hook shares of each rank of this node, looked at each second.

    ranks:/dev/shm/foreshock#user=train

A rank that stopped while the others wait in a collective, and each rank's own work a step, from 1 KiB of memory a rank;
the training does nothing for it. `collectors/telemetry/rank_states.py` says what is sent, and when.
"""

import os
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from collectors.collector import CollectorTurn, IntervalLooks, Position, SourceError, SourceSettings, split_options
from collectors.decoder import number
from collectors.files.owned_files import OwnedFile, OwnedFolder, read_owned
from collectors.telemetry.rank_states import LEAST_STALL_S, SIZE, RankReading, RunOnNode, process_runs, rank_reading

_INTERVAL_S = 1.0
# New files are looked for so often.
_LIST_S = 5.0
# A node has 8 or 16 ranks; a test bed some more.
MOST_RANKS = 512
MOST_RUNS = 16
# What ended as planned, or has not been written for so long, is of a job that is over.
_OLD_S = 24 * 3600.0
# A process that ended without a word so long ago keeps nobody waiting now.
_DEAD_S = 3600.0


class RanksCollector(IntervalLooks):
    """One folder."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is DIR, with options behind `#`.

        Raises:
            SourceError: no directory, or an unknown option.
        """
        super().__init__(f"ranks:{rest}", settings.interval_s or _INTERVAL_S)
        folder, options = split_options(self.spec, rest, ("user", "stall_s"))
        if not folder:
            raise SourceError(f"{self.spec}: names no directory: write ranks:DIR, the one of the hook's share_state")
        self._folder = OwnedFolder(self.spec, Path(folder), options.get("user", [None])[-1])
        self._stall_s = _seconds(self.spec, options.get("stall_s", [None])[-1])
        self._node = settings.node
        self._list_due = 0.0
        self._files: list[OwnedFile] = []
        self._refused = 0
        self._runs: dict[str, RunOnNode] = {}
        self._namespace = _namespace()

    def open(self, _position: Position | None) -> None:
        """Begin; nothing is remembered, for ranks say where they are.

        Raises:
            SourceError: the directory cannot be listed.
        """
        self._folder.check()
        self.due_s = time.monotonic()

    def look(self, now: datetime) -> CollectorTurn:
        """What has changed."""
        refused = self._list() if time.monotonic() >= self._list_due else 0
        readings: dict[str, dict[int, RankReading]] = {}
        errors = 0
        for file in self._files:
            data, reading = self._reading(file)
            errors += data is not None and reading is None
            if reading is None or self._is_over(reading, file, now.timestamp()):
                continue
            if reading.run not in readings and len(readings) >= MOST_RUNS:
                continue
            known = readings.setdefault(reading.run, {}).get(reading.rank)
            if known is None or known.stamp_s < reading.stamp_s:
                readings[reading.run][reading.rank] = reading
        for run in self._runs.keys() - readings.keys():
            del self._runs[run]
        events = []
        for run, own in readings.items():
            state = self._runs.setdefault(run, RunOnNode(run, self._node, self._stall_s))
            for place, event in enumerate(state.look(list(own.values()), now)):
                events.append(number(event, f"{self.spec}:{run}:{place}:{now.isoformat()}"))
        return CollectorTurn(
            tuple(events),
            lines=sum(map(len, readings.values())),
            errors=errors,
            refused={"writer": refused} if refused > 0 else {},
        )

    def _list(self) -> int:
        """Which files there are; how many more are somebody else's than before."""
        self._list_due = time.monotonic() + _LIST_S
        found = sorted(self._folder.files(), key=lambda file: -file.mtime_s)
        self._files = [file for file in found if file.size == SIZE and ".rank" in file.name][:MOST_RANKS]
        more, self._refused = self._folder.refused - self._refused, self._folder.refused
        return more

    def _reading(self, file: OwnedFile) -> tuple[bytes | None, RankReading | None]:
        """What a file says, and whether its process runs."""
        data = read_owned(file, SIZE)
        reading = None if data is None else rank_reading(data)
        if data is not None and reading is None and (data := read_owned(file, SIZE)) is not None:
            reading = rank_reading(data, whole=False)  # stopped within a change, or none of the hook's
        if data is None:  # another file took its place
            self._list_due = 0.0
        if reading is None:
            return data, None
        return data, replace(reading, runs=process_runs(reading, file.uid, self._namespace, time.time()))

    @staticmethod
    def _is_over(reading: RankReading, file: OwnedFile, now_s: float) -> bool:
        """Whether a file is of a job that is over."""
        if not reading.runs and now_s - reading.stamp_s > _DEAD_S:
            return True
        return now_s - max(reading.stamp_s, file.mtime_s) > _OLD_S


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that leads to no path
    except OSError:
        return 0


def _seconds(spec: str, text: str | None) -> float:
    if text is None:
        return LEAST_STALL_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.5 <= seconds <= 3600.0:
        raise SourceError(f"{spec}: stall_s is {text[:40]!r}: write seconds from 0.5 to 3600")
    return seconds

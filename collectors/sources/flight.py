"""`flight:DIR[#run=NAME&user=NAME]`: dumps of PyTorch's flight recorder, looked for each second.

    flight:/tmp/traces#run=llm-70b&user=train

Each rank writes one file when its collective times out, `nccl_trace_rank_5` (TORCH_FR_DUMP_TEMP_FILE). It is read
when it has stopped growing, and never executed. What the ranks of this node tell of one group is sent as one event.
"""

import io
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, IntervalLooks, Position, SourceError, SourceSettings, split_options
from collectors.decoder import number
from collectors.files.owned_files import OwnedFile, OwnedFolder, read_owned
from parsers.dumps.pickled import MOST_BYTES
from parsers.registry import make_parser
from parsers.text.lines import ReadError, lines
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Attribute, Event
from store.runs.rank_set import numbers_of, ranks_of, text_of_numbers, text_of_ranks

_INTERVAL_S = 1.0
# Dumps of one node that are remembered; what is older than this was of a former job.
MOST_FILES = 512
_OLD_S = 24 * 3600.0
_NUMBERS = ("last_enqueued", "last_started", "last_completed")
_SETS = ("waiting", "absent")


class FlightCollector(IntervalLooks):
    """One folder."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is DIR, with options behind `#`.

        Raises:
            SourceError: no directory, or an unknown option.
        """
        super().__init__(f"flight:{rest}", settings.interval_s or _INTERVAL_S)
        folder, options = split_options(self.spec, rest, ("run", "user"))
        if not folder:
            raise SourceError(f"{self.spec}: names no directory: write flight:DIR, where the program writes its dumps")
        self._folder = OwnedFolder(self.spec, Path(folder), options.get("user", [None])[-1])
        self._run = options.get("run", [""])[-1]
        self._node = settings.node
        self._growing: dict[str, list[float]] = {}
        self._read: dict[str, list[float]] = {}  # of each file: its time and size when it was read
        self._refused = 0

    def open(self, position: Position | None) -> None:
        """Take up what was read; the first look is at once.

        Raises:
            SourceError: the directory cannot be listed.
        """
        self._folder.check()
        read: Mapping[str, Any] = (position or {}).get("read") or {}
        self._read = {str(name): [float(value) for value in values] for name, values in read.items()}
        self.due_s = time.monotonic()

    def look(self, now: datetime) -> CollectorTurn:
        """What dumps say that were written since."""
        events: list[Event] = []
        errors = count = 0
        growing: dict[str, list[float]] = {}
        kept: dict[str, list[float]] = {}
        for file in self._dumps(now):
            state = [file.mtime_s, float(file.size)]
            if self._read.get(file.name) == state:
                kept[file.name] = state
            elif self._growing.get(file.name) != state:
                growing[file.name] = state
            else:
                kept[file.name] = state
                count += 1
                found, broken = self._events(file)
                events += found
                errors += broken
        changed = kept != self._read
        self._growing, self._read = growing, kept
        refused, self._refused = self._folder.refused - self._refused, self._folder.refused
        return CollectorTurn(
            tuple(
                number(event, f"{self.spec}:{event.attributes.get('group')}:{now.isoformat()}")
                for event in joined(events)
            ),
            position={"read": kept} if changed else None,
            lines=count,
            errors=errors,
            refused={"writer": refused} if refused > 0 else {},
        )

    def _dumps(self, now: datetime) -> list[OwnedFile]:
        """The dumps that are there, the newest first."""
        found = [
            file
            for file in self._folder.files()
            if file.size and file.name[-1:].isdigit() and now.timestamp() - file.mtime_s < _OLD_S
        ]
        return sorted(found, key=lambda file: -file.mtime_s)[:MOST_FILES]

    def _events(self, file: OwnedFile) -> tuple[list[Event], int]:
        """One dump's events, of the moment in which it was written; and how many errors it has."""
        data = read_owned(file, MOST_BYTES + 1)
        if data is None:
            return [], 1
        broken: list[ParseError] = []
        context = Context(node=self._node, run=f"{self._run}/{file.name}" if self._run else file.name, trust="user")
        written = datetime.fromtimestamp(file.mtime_s, UTC)
        try:
            texts = list(lines(io.BufferedReader(io.BytesIO(data)), file.name))
        except ReadError:
            return [], 1
        found = parse(make_parser("flight", context), texts, lambda _line, error: broken.append(error))
        return [replace(event, time=written) for event in found], len(broken)


def joined(events: Iterable[Event]) -> list[Event]:
    """The reports of many ranks, one a group and operation."""
    groups: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        told = event.attributes
        key = (told.get("run"), told.get("group"), told.get("operation"), told.get("members"))
        groups.setdefault(key, []).append(event)
    return [own[0] if len(own) == 1 else _one(own) for own in groups.values()]


def _one(events: list[Event]) -> Event:
    told: dict[str, Attribute] = dict(events[0].attributes)
    ranks: set[int] = set()
    numbers: dict[str, dict[int, int]] = {key: {} for key in _NUMBERS}
    sets: dict[str, set[int]] = {key: set() for key in _SETS}
    for event in events:
        own = ranks_of(event.attributes.get("ranks"))
        ranks |= own
        for key, found in numbers.items():
            found.update(numbers_of(event.attributes.get(key), own))
        for key, members in sets.items():
            members |= ranks_of(event.attributes.get(key))
    told["ranks"] = text_of_ranks(ranks)
    told |= {key: text_of_numbers(found) for key, found in numbers.items() if found}
    told |= {key: text_of_ranks(members) for key, members in sets.items() if members}
    times = [event.time for event in events if event.time is not None]
    words = f"{len(ranks)} ranks tell where they stand in group {told.get('group')}"
    return replace(events[0], time=max(times, default=None), message=words, attributes=told)

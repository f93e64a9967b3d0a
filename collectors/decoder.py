"""A parser behind a live source: errors and refusals counted, events numbered, what it holds back survives a restart.

A parser may hold an event back until its next line. What it held when the sidecar died is found again by feeding it
the lines before the saved position once more and throwing away what comes out: `rehearse`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from parsers.text.parser import UNREADABLE, Parser, clean
from parsers.trust import RefusedLineError
from store.plural import many
from store.records.event import Attribute, Event, event_id, from_us
from store.records.fault_catalog import with_kind_meaning


class Decoder:
    """Lines in, events with ids out. `origin` tells a line number's place in the world, the same after a restart."""

    def __init__(self, parser: Parser, origin: Callable[[int], str], file: str | None = None) -> None:
        self._parser = parser
        self._origin = origin
        self._file = file
        self._events: list[Event] = []
        self._line = 0
        self._passed: tuple[bytes, int] | None = None  # the last line of those that were passed over
        self.errors = 0
        self._refused: Counter[str] = Counter()
        self.flushed_line = 0  # the parser holds nothing back of the lines up to here

    def feed(self, text: str, line: int) -> None:
        """Decode one line; a broken one is counted and skipped."""
        if self._passed is not None:
            passed, self._passed = self._passed, None
            self.feed(clean(passed[0]), passed[1])
        self._line = line
        if line == 1:  # some writers begin a file with a byte order mark
            text = text.removeprefix("\ufeff")
        self._decode(partial(self._parser.feed, text, line))
        if not getattr(self._parser, "holds", True):
            self.flushed_line = line

    def is_quiet(self, block: bytes) -> bool:
        """Whether of a block of whole lines, which come next, none need be fed but the last."""
        is_quiet: Callable[[bytes], bool] | None = getattr(self._parser, "is_quiet", None)
        return bool(block) and is_quiet is not None and not self.holding and is_quiet(block)

    def pass_over(self, last: bytes, line: int) -> None:
        """A quiet block was read: its last line is fed when another line is."""
        self._passed = last, line
        self._line = self.flushed_line = line

    def flush(self) -> None:
        """The source is quiet: nothing more belongs to what is held back."""
        if not self.holding:
            return
        self.flushed_line = self._line
        self._decode(self._parser.flush)

    def _decode(self, step: Callable[[], Iterable[Event]]) -> None:
        try:
            self._take(step())
        except RefusedLineError as refused:
            self._refused[refused.reason] += 1
        except UNREADABLE:  # a ParseError, or a defect of ours: it loses the line and no other
            self.errors += 1

    @property
    def holding(self) -> bool:
        """Whether the parser may hold something back of the lines that were fed since the last flush."""
        return self._line > self.flushed_line

    def rehearse(self, lines: Sequence[tuple[int, str]], flushed_line: int) -> None:
        """Feed lines that were decoded before; `flushed_line` is the one after which the parser was last flushed."""
        for line, text in lines:
            if self._line <= flushed_line < line:
                self.flush()
            self.feed(text, line)
        if self._line <= flushed_line:
            self.flush()
        self.flushed_line = flushed_line
        self._events.clear()
        self._refused.clear()
        self.errors = 0

    @property
    def has_news(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._events or self.errors or self._refused)

    def take(self) -> tuple[Event, ...]:
        """The events decoded since the last call."""
        taken = tuple(self._events)
        self._events.clear()
        return taken

    def take_errors(self) -> int:
        """The broken lines since the last call."""
        errors, self.errors = self.errors, 0
        return errors

    def take_refused(self) -> dict[str, int]:
        """The lines since the last call whose writer may not say what they say, by the reason."""
        if not self._refused:
            return {}
        refused, self._refused = self._refused, Counter()
        return dict(refused)

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            placed = event if self._file is None else replace(event, file=self._file)
            origin = self._origin(self._line if event.line is None else event.line)
            self._events.append(number(placed, origin))


def number(event: Event, origin: str) -> Event:
    """The event with an id from its origin.

    The time is no part of it where the origin is: an estimate of the boot time may differ after a restart.
    """
    return replace(event, id=event_id(replace(event, time=None) if origin else event, origin))


# Lines that nobody read, as events of their own: whatever they said of a fault is unknown.
#
# Each is of one place in its source (`origin`), so that the same gap is the same event whenever it is noticed.


def overrun(node: str, boot: str, seq: int, lost: int, moment_us: int) -> Event:
    """Records of the kernel's ring before this one were overwritten; `moment_us` is the Unix time of this one."""
    message = f"{many(lost, 'kernel log record was', 'kernel log records were')} overwritten before they could be read."
    moment = from_us(moment_us)
    return gap(node, moment, f"kmsg:{boot}:{seq}:gap", message, {"lost": lost, "origin": "kmsg"})


def boot_ended(node: str, boot: str, seq: int, moment_us: int) -> Event:
    """A boot's ring is gone: what it held after this record was not read; how much that was is not known.

    Args:
        moment_us: Unix time when the next boot began.
    """
    message = f"The kernel log of the boot before was read up to record {seq}: what followed is not known."
    moment = from_us(moment_us)
    attributes: dict[str, Attribute] = {"origin": "kmsg", "boot": boot, "last": seq}
    return gap(node, moment, f"kmsg:{boot}:{seq}:unread", message, attributes, "reboot")


def gap(
    node: str, time: datetime, origin: str, message: str, attributes: Mapping[str, Attribute], variant: str = ""
) -> Event:
    """A gap of any source; `attributes` hold `lost` where the number is known."""
    source = "kernel" if origin.startswith(("kmsg:", "journal:")) else "sidecar"
    event = Event(time, node, source, "collector_gap", message=message, attributes=dict(attributes))
    return number(with_kind_meaning(event, variant), origin)


# What a program prints again and again, to what is new in it. Pure; its state is plain JSON.
#
# A counter becomes its increase since the last run: the tools print what was counted since it was cleared, and nothing
# of one that is 0. Anything else is reported when it appears, and again only after a run that lacked it.

# A fabric of 100,000 GPUs has some 50,000 ports; few of them have counted an error.
MOST_COUNTERS = 20_000
MOST_CONDITIONS = 5_000
_COUNTER = "counter"
# Attributes that say where a counter is, besides its device.
_PLACE = ("lid", "path", "hca", "switch")


class RepeatFilter:
    """Everything that one program ever printed, as far as it matters."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._counters: dict[str, int] = dict(saved.get("counters", {}))
        self._conditions: set[str] = set(saved.get("conditions", ()))
        self._ran = bool(saved.get("ran"))
        self.left_out = 0  # counters beyond MOST_COUNTERS

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {"counters": self._counters, "conditions": sorted(self._conditions), "ran": self._ran}

    def add(self, events: Iterable[Event], now: datetime, origin: str) -> list[Event]:
        """The new ones of a run that began at `now`.

        Args:
            origin: the run's own name, for what bears no time: it is an observation of this moment, and no other's.
        """
        conditions: set[str] = set()
        found = []
        for event in events:
            if event.kind == _COUNTER and isinstance(event.attributes.get("count"), int):
                found += [self._dated(rise, now, origin) for rise in self._rise(event)]
                continue
            seen = event_id(replace(event, line=None))
            if len(conditions) < MOST_CONDITIONS:
                conditions.add(seen)
            if seen not in self._conditions:
                found.append(self._dated(event, now, origin))
        self._conditions, self._ran = conditions, True
        return found

    def _rise(self, event: Event) -> Iterator[Event]:
        name = event.attributes.get("counter")
        count = int(event.attributes["count"] or 0)
        where = "/".join(str(event.attributes[key]) for key in _PLACE if key in event.attributes)
        key = f"{event.node or ''}|{event.device.key()}|{where}|{name}"
        before = self._counters.get(key)
        if before is None and len(self._counters) >= MOST_COUNTERS:
            self.left_out += 1
            return
        self._counters[key] = count
        if before is None and not self._ran:
            return  # where it stands, not an increase
        increase = count - (before or 0) if count >= (before or 0) else count
        if increase > 0:
            attributes: dict[str, Attribute] = {**event.attributes, "count": increase, "total": count}
            yield replace(event, message=f"{name} rose by {increase}", attributes=attributes)

    @staticmethod
    def _dated(event: Event, now: datetime, origin: str) -> Event:
        if event.time is not None:
            return number(event, "")  # its own moment tells it apart: printed again, it is the same
        return replace(number(event, f"{origin}:{event.line}"), time=now)

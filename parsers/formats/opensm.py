"""The subnet manager's log: links that change state, ports that vanish and return, counters, errors, its own state.

    Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061
      LID range [17, 17] of node:gpu007 mlx5_0                                                    (one line)
    -> {"kind": "port_removed", "node": "gpu007", "device": {"type": "port", "uuid": "0xb83fd20300200061"},
        "attributes": {"lid": 17, "hca": "mlx5_0"}, ...}

Upstream opensm, MLNX's and UFM's builds and nvlsm write this form; through syslog (`OpenSM[2891]:`) it stands behind
syslog's own prefix, or without a header of its own. Lines bear no year and are in local time. A record may go on over
several lines, boxes among them: these bear no header.

What it means that several ports vanish at once (a node that reboots, a switch that is lost) is not said here: each
record is one event, as exact as the log is. At a link's loss that is the switch, but not the port.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from parsers.fabric import ports, subnet_manager
from parsers.fabric.node_names import NodeNames
from parsers.fabric.ports import Traps
from parsers.fabric.subnet_manager import SubnetManager, Timeouts
from parsers.text.parser import Context, Format, FormatSigns, ParseError
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from store.records.event import Event

# What a subnet manager repeats: reported once, then counted.
#
# A duplicate GUID makes it write 370 records a second. The first is an event at once. Those of the next minute that say
# the same of the same device are counted: one event at the minute's end (or when the source is quiet) bears their
# number in `count` and the seconds they span in `span_s`, with the line and time of the first of them. So nothing is
# lost: the events' counts, 1 where there is none, add up to the records.

WINDOW_S = 60.0
# Where times are unknown: what a duplicate GUID writes in a minute.
WINDOW_LINES = 60 * 370
# A manager that cannot reach anybody names every port: the oldest is reported and forgotten.
MOST = 4096
KINDS = frozenset({"sm_error", "smp_timeout", "heavy_sweep"})

Key = tuple[object, ...]


class _RepeatCount:
    """One thing that was reported, and its repeats so far."""

    __slots__ = ("count", "event", "first", "last")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.first: Event | None = None
        self.last: Event = event
        self.count = 0


class RepeatCounter:
    """Lets the first of equal events pass and counts the others of a minute. Bounded by MOST."""

    def __init__(self) -> None:
        self._seen: dict[Key, _RepeatCount] = {}

    def admit(self, event: Event) -> list[Event]:
        """What is to be reported now that an event has come."""
        if event.kind not in KINDS:
            return [event]
        key = _key(event)
        seen = self._seen.get(key)
        if seen is not None and _within(seen.event, event.time, event.line or 0):
            seen.first = seen.first or event
            seen.last = event
            seen.count += 1
            return []
        reported = self._forget(key) if seen is not None else []
        if len(self._seen) >= MOST:
            reported += self._forget(next(iter(self._seen)))
        self._seen[key] = _RepeatCount(event)
        return [*reported, event]

    def over(self, time: datetime | None, line: int) -> list[Event]:
        """The counts of those minutes that have ended, as of a line."""
        reported: list[Event] = []
        while self._seen:
            key, seen = next(iter(self._seen.items()))
            if _within(seen.event, time, line):
                break
            reported += self._forget(key)
        return reported

    def flush(self) -> list[Event]:
        """The counts so far; their minutes go on."""
        return [event for seen in self._seen.values() for event in _counted(seen)]

    def _forget(self, key: Key) -> list[Event]:
        return _counted(self._seen.pop(key))


def _counted(seen: _RepeatCount) -> list[Event]:
    """The event that stands for the repeats; none where there were none."""
    first, count = seen.first, seen.count
    seen.first, seen.count = None, 0
    if first is None:
        return []
    attributes = {**first.attributes, "count": count}
    if first.time is not None and seen.last.time is not None:
        attributes["span_s"] = round((seen.last.time - first.time).total_seconds(), 6)
    return [replace(first, attributes=attributes)]


def _key(event: Event) -> Key:
    """What makes two events say the same: not which attribute was asked for, nor the words around it."""
    reported = event.attributes
    names = ("error", "function", "path", "lid", "status", "seen_at_1", "seen_at_2", "subnet_initialization_error")
    return (event.kind, event.node, event.device.key(), *(reported.get(name) for name in names))


def _within(event: Event, time: datetime | None, line: int) -> bool:
    if event.time is None or time is None:
        return line - (event.line or 0) <= WINDOW_LINES
    return 0 <= (time - event.time).total_seconds() < WINDOW_S


HEADER = re.compile(
    r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d{2}:\d{2}:\d{2}) (?P<usec>\d{6}) "
    r"\[(?P<thread>[0-9A-F]{1,16})\] 0x(?P<level>[0-9A-Fa-f]{2}) -> (?P<text>.*)",
    re.ASCII | re.DOTALL,
)
_TAG = r"(?:OpenSM|opensmd?|osm|nvlsm)"
_SYSLOG = re.compile(rf".{{0,300}}?\b{_TAG}(?:\[\d{{1,10}}\])?: ", re.ASCII)
_TAGS = re.compile(_TAG, re.ASCII)
# Records whose details stand in the lines below their header; the others are read at once.
_GOES_ON = re.compile(
    r"\w{1,64}:\s{0,8}$|(?:\w{1,64}: )?(?:Unlinking local node|ERR 0D01: |ERR 0F06: |ERR 3111: |ERR 3610: "
    r"|ERR 54\d\d: .{0,100}completed with error|Received SMP on a \d{1,3} hop path:\s*$"
    r"|SM class trap 128: .{0,60}hop path:\s*$|Node 0x[0-9a-f]{1,16}\s*$)",
    re.ASCII,
)
# What a record holds that says anything, of itself or of names; the rest of a log (sweeps, tables) is passed over.
_SAYS = (
    *("port with GUID", "changed state from", "Unlinking local node", "ERR ", "Generic Notice", " Notice ", "_Key:"),
    *("SM class trap 128", "Received SMP on a", "Description = ", "IS_SM", "SUBNET UP", "Entering ", "Exiting SM"),
    *("SM port is ", "Handing over mastership", "HEAVY SWEEP", "Errors during initialization", "OpenSM "),
    *(f"{digit} (" for digit in "0123456789abcdef"),  # a name behind a GUID
)
# A record that goes on, and every one behind syslog's prefix, for a search of whole blocks.
_STARTS = (
    r"[A-Z][a-z][a-z] +[0-9][0-9]? [0-9:]{8} [0-9]{6} \[[0-9A-F]+\] 0x[0-9A-Fa-f]+ -> "
    r"(?:\w+:[ \t\r]*(?:\n|$)|Node 0x|.*(?:Unlinking local node|ERR |Received SMP on a|SM class trap 128))"
    rf"|.*{_TAG}(?:\[[0-9]+\])?: "
)
# A box has seven lines, a report of a duplicate GUID three; dumps of packets are of no use here.
MOST_LINES = 12
# One link's loss is reported by two functions of one sweep.
SAME_LOSS_S = 0.5


@dataclass(slots=True)
class _OpensmRecord:
    """A record whose lines are still coming."""

    text: str
    time: datetime | None
    line: int
    thread: str
    node: str | None
    lines: int = 1


class OpensmParser:
    """Decodes lines of opensm.log. Holds a record that goes on, a trap without its notice, the repeats of a minute."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._prefix = PrefixReader(self._stamps)
        self._names = NodeNames()
        self._traps = Traps(self._names)
        self._timeouts = Timeouts(self._names)
        self._manager = SubnetManager(self._names)
        self._repeats = RepeatCounter()
        self._open: _OpensmRecord | None = None
        self._lost: Event | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line; a line without a header belongs to the record before it."""
        record = self._begun(text, line)
        if record is None:
            self._append(text)
            return []
        events = [*self._closed(), *self._late(record.time, line)]
        if _GOES_ON.match(record.text):
            self._open = record
            return events
        return [*events, *self._read(record)]

    def flush(self) -> Iterable[Event]:
        """What is held back: an open record, state changes whose switch nobody named, counts of repeats."""
        held = self._closed()
        waiting = [event for late in (*self._traps.flush(), *self._timeouts.flush()) for event in self._reported(late)]
        return [*held, *waiting, *self._repeats.flush()]

    def _begun(self, text: str, line: int) -> _OpensmRecord | None:
        """The record that a line begins; None for one that begins none.

        Raises:
            ParseError: a header with an impossible date.
        """
        header = HEADER.match(text)
        if header is None:
            return self._wrapped(text, line) if _SYSLOG.match(text) else None
        return _OpensmRecord(header["text"], self._time(header, text), line, header["thread"], None)

    def _time(self, header: re.Match[str], text: str) -> datetime | None:
        time = self._stamps.yearless(header["month"], header["day"], f"{header['clock']}.{header['usec']}")
        if time is None and self._stamps.knows_year():
            raise ParseError(f"{text[:15]!r} is no date")
        return time

    def _wrapped(self, text: str, line: int) -> _OpensmRecord | None:
        """A record behind syslog's prefix; rsyslog writes a line end within it as #012."""
        record = self._prefix.read(text)
        if record.tag is None or not _TAGS.fullmatch(record.tag):
            return None
        message = record.message.replace("#012", "\n")
        if header := HEADER.match(message):
            time = self._time(header, message)
            return _OpensmRecord(header["text"], time, line, header["thread"], record.node)
        return _OpensmRecord(message, record.time, line, "", record.node)

    def _append(self, text: str) -> None:
        record = self._open
        if record is not None and record.lines < MOST_LINES:
            record.text += "\n" + text[:400]
            record.lines += 1

    def _closed(self) -> list[Event]:
        """The events of the record whose lines have all come."""
        record, self._open = self._open, None
        return [] if record is None else self._read(record)

    def _late(self, time: datetime | None, line: int) -> list[Event]:
        """What was held back until now, as of a line."""
        late = [*self._traps.late(time, line), *self._timeouts.late(time, line)]
        return [*(event for held in late for event in self._reported(held)), *self._repeats.over(time, line)]

    def _read(self, record: _OpensmRecord) -> list[Event]:
        """The events of a whole record."""
        text, time, line = record.text, record.time, record.line
        self._names.listen(text)
        held = self._traps.read(text, time, line)
        if held is None:
            held = self._timeouts.read(text, time, line, record.thread)
        if held is None:
            event = ports.decode_port(text, self._names)
            if event is None:
                event = self._manager.read(text) or subnet_manager.decode_error(text, self._names)
                event = event and replace(event, node=event.node or record.node)
            held = [replace(event, time=time, line=line)] if event else []
        return [event for found in held for event in self._reported(found)]

    def _reported(self, event: Event) -> list[Event]:
        """The event, but for one that only says again what was said."""
        if event.kind != "link_down":
            return self._repeats.admit(event)
        before, self._lost = self._lost, event
        return [] if before is not None and _same_loss(before, event) else [event]


def _same_loss(before: Event, event: Event) -> bool:
    if before.device != event.device or "from" in event.attributes or before.time is None or event.time is None:
        return False
    return 0 <= (event.time - before.time).total_seconds() <= SAME_LOSS_S


FORMAT = Format(
    name="opensm",
    description="Log of the InfiniBand subnet manager",
    sample="Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
    "LID range [17, 17] of node:gpu007 mlx5_0",
    make=OpensmParser,
    testimony="machine",
    recognises=re.compile(rf"^{HEADER.pattern}|^.{{0,300}}?\b(?:OpenSM|opensmd?|nvlsm)\[\d{{1,10}}\]: ", re.ASCII),
    signs=FormatSigns(_SAYS, _STARTS, re.compile(rf"(?!{HEADER.pattern})", re.ASCII | re.DOTALL), MOST_LINES),
)

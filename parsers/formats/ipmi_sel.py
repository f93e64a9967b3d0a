"""The event log of a management controller: `ipmitool sel list` and `elist` (also with -c), FreeIPMI's `ipmi-sel`.

      1a | 03/01/25 | 04:05:06 UTC | Power Supply #0x51 | Power Supply AC lost | Asserted
    12 | Mar-01-2025 | 04:05:06 | Sensor #81 | Power Supply | Assertion Event | Power Supply input lost (AC/DC)
    -> {"kind": "power_supply", "severity": "error", "attributes": {"sensor": "#0x51", "record": "1a"}, ...}

The log outlives a crash of the host, and names what the kernel had no time to say. All of it is printed each time, old
entries too. A state that is over ("Deasserted", "Fully Redundant") is told where its begin is; of what happened once
only that it did. `ipmi-sel` says which of both an entry is with -v alone: without it an end reads as a begin.
ipmitool writes the date in its locale, of which month/day/year, day.month.year and year-month-day are read, and
day/month/year where no month has that number. An entry from before the controller knew the time ("Pre-Init",
"PostInit", a kernel's panic) has that of the one before it (`time_assumed`); the first of a log has none, and is a
warning at most. A zone is the context's unless it is UTC or a number. Lines may bear the name of their node as `pdsh`
writes it.
Sources: IPMI 2.0 section 42.2; the words are those of ipmitool 1.8.19 and FreeIPMI 1.6.10.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from parsers.reports.sel_entries import ENDED, TYPES, SelMeaning, meaning_of
from parsers.reports.tool_reading import MOST_OPEN
from parsers.text.json_fields import attributes
from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps, month_of
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

_NODE = re.compile(r"(?P<node>[A-Za-z0-9][\w.-]{0,252}): +(?=[0-9a-fA-F]{1,5} *[|,])", re.ASCII)
_RECORD = re.compile(r"\s{0,4}(?P<record>[0-9a-fA-F]{1,5}) *(?=[|,])", re.ASCII)
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{2}|\d{4})", re.ASCII)
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{2}|\d{4})", re.ASCII)
_NAMED = re.compile(r"([A-Z][a-z]{2})-(\d{1,2})-(\d{4})", re.ASCII)
_WHOLE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK = re.compile(
    r"(\d{1,2}):(\d\d):(\d\d)(?: (?P<half>[AP]M))?(?: (?P<zone>[A-Z]{1,5}|[+-]\d\d(?:\d\d)?))?", re.ASCII
)
_PANIC = "Linux kernel panic: "
_DIRECTIONS = {"Asserted": True, "Deasserted": False, "Assertion Event": True, "Deassertion Event": False}
_STATES = frozenset({"Nominal", "Warning", "Critical", "N/A"})
# `CPU 1 DIMM 2`, `(@DIMMG1(CPU2))`, `( DIMM_A1)`
_DIMM = re.compile(r"CPU \d{1,2} DIMM \d{1,2}|\( ?@?(?P<name>DIMM\w{1,20}\(CPU\w{1,4}\)|[\w-]{1,40}) ?\)", re.ASCII)
_LONGEST, _MOST_FIELDS = 200, 32


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line taken apart: `type` and `sensor` as written, what happened, whether it began or ended."""

    record: str
    date: str
    clock: str
    type: str
    sensor: str
    words: str
    begins: bool
    reading: str = ""


class IpmiSelParser:
    """Decodes entries of one node's log or, of lines that name their nodes, of several. Holds each one's last time."""

    def __init__(self, context: Context) -> None:
        self._node, self._stamps = context.node, Stamps(context)
        self._last: dict[str | None, datetime] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of one entry; none of a heading, and of what is no fault."""
        node = self._node
        if prefix := _NODE.match(text):
            node, text = prefix["node"], text[prefix.end() :]
        found = _RECORD.match(text)
        entry = _entry(text[found.end() :], found["record"]) if found else None
        if entry is None:
            return []
        if moment := self._moment(entry):
            self._last.pop(node, None)
            self._last[node] = moment
            if len(self._last) > MOST_OPEN:
                del self._last[next(iter(self._last))]
        if (meaning := meaning_of(entry.type, entry.sensor, entry.words)) is None:
            return []
        event = _event(entry, meaning)
        return [] if event is None else [replace(self._dated(event, entry, node), node=node, line=line)]

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []

    def _dated(self, event: Event, entry: _Entry, node: str | None) -> Event:
        """With its time or, where the controller knew none, that of the entry before; of no time at all it warns."""
        if (moment := self._moment(entry)) is not None:
            return replace(event, time=moment)
        if (before := self._last.get(node)) is not None:
            return replace(event, time=before, attributes={**event.attributes, "time_assumed": True})
        return replace(event, severity="warning", action="watch") if event.severity in ("error", "fatal") else event

    def _moment(self, entry: _Entry) -> datetime | None:
        day, clock = _day(entry.date), _CLOCK.fullmatch(entry.clock)
        if clock is None or day is None:
            return None
        year, month, date = day
        hour = int(clock[1]) % 12 + 12 * (clock["half"] == "PM") if clock["half"] else int(clock[1])
        text = f"{year:04d}-{month:02d}-{date:02d} {hour:02d}:{clock[2]}:{clock[3]}"
        return self._stamps.zoned(text, clock["zone"])


def _day(text: str) -> tuple[int, int, int] | None:
    """Year, month, day."""
    if match := _SLASHED.fullmatch(text) or _DOTTED.fullmatch(text):
        month, day, year = (int(part) for part in match.groups())
        if month > 12 or match.re is _DOTTED:  # where dates have dots the day stands first
            month, day = day, month
        if len(match[3]) == 2:  # a clock that was never set may say 90
            year += 1900 if year >= 70 else 2000
        return year, month, day
    if match := _NAMED.fullmatch(text):
        return int(match[3]), month_of(match[1]) or 0, int(match[2])
    match = _WHOLE.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _entry(rest: str, record: str) -> _Entry | None:
    """The entry of what follows its number; None where the line has neither program's form."""
    mark = "|" if rest.lstrip()[:1] == "|" else ","
    fields = [field.strip()[:_LONGEST] for field in rest.split(mark, _MOST_FIELDS)[1:]]
    if fields[-1].startswith(_PANIC):
        return _Entry(record, "", "", "OS Critical Stop", "", f"critical stop: {fields[-1]}", begins=True)
    place = next((at for at in range(len(fields) - 1, 3, -1) if fields[at] in ("Asserted", "Deasserted")), None)
    if place is not None:  # ipmitool's
        kind, sensor = _type_of(fields[2])
        reading = ", ".join(fields[place + 1 :])
        words = mark.join(fields[3:place])
        return _Entry(record, fields[0], fields[1], kind, sensor, words, _DIRECTIONS[fields[place]], reading)
    if len(fields) < 5 or not (_NAMED.fullmatch(fields[0]) or fields[0] == fields[1]):
        return None
    at, begins = 4, True  # FreeIPMI's: name, type, then columns that are asked for
    while at < len(fields) - 1 and (fields[at] in _DIRECTIONS or fields[at] in _STATES):
        begins = _DIRECTIONS.get(fields[at], begins)
        at += 1
    words, *details = f"{mark} ".join(fields[at:]).split(" ; ")
    if fields[3] == "System Firmware Progress":
        words, details = " ; ".join((words, *details)), []
    return _Entry(record, fields[0], fields[1], fields[3], fields[2], words, begins, ", ".join(details))


def _type_of(text: str) -> tuple[str, str]:
    """The type of a sensor and its name, which ipmitool writes in one field."""
    lower = text.lower()
    known = next((one for one in TYPES if lower.startswith(one)), None)
    return (text, "") if known is None else (text[: len(known)], text[len(known) :].strip())


def _event(entry: _Entry, meaning: SelMeaning) -> Event | None:
    lasts = entry.begins and not ENDED.search(entry.words)
    variant = meaning.variant if lasts else meaning.over
    if variant is None:
        return None
    dimm = _DIMM.search(f"{entry.words} {entry.reading}") if meaning.device == "dimm" else None
    shown = [
        " ".join(filter(None, (entry.type, entry.sensor))),
        entry.words,
        entry.reading,
        "" if lasts else "it is over",
    ]
    said = attributes(
        sensor=entry.sensor[:_LONGEST] or None,
        record=entry.record.lower(),
        reading=entry.reading[:_LONGEST] or None,
        dimm=None if dimm is None else dimm["name"] or dimm[0],
        severity=variant if meaning.kind in ("edac", "pcie_aer") else None,
    )
    message = ": ".join(filter(None, shown))[:500]
    device = Device() if meaning.device is None else Device(meaning.device)
    event = Event(None, None, "ipmi_sel", meaning.kind, device=device, message=message, attributes=said)
    if meaning.kind != "health_event":
        return with_kind_meaning(event, variant)
    checked = {**said, "detector": "ipmi_sel", "check": entry.type[:_LONGEST]}
    judged = with_kind_meaning(replace(event, attributes=checked))
    return replace(judged, severity="error", action="run_diagnostics") if variant == "grave" else judged


FORMAT = Format(
    name="ipmi_sel",
    description="Event log of a management controller (BMC): ipmitool sel list, elist; FreeIPMI's ipmi-sel",
    sample="  1a | 03/01/25 | 04:05:06 UTC | Power Supply #0x51 | Power Supply AC lost | Asserted",
    make=IpmiSelParser,
    testimony="machine",
    recognises=re.compile(
        r"^(?:[\w.-]+: )?\s*[0-9a-f]{1,4}"
        r"(?: \| +(?:\d\d[/.]\d\d[/.]\d{2,4} \| \d\d:\d\d:\d\d|Pre-Init  \|\d).*\| (?:Ass|Deass)erted|"
        r",\d\d[/.]\d\d[/.]\d{2,4},\d\d:\d\d:\d\d(?: [A-Z]{2,5})?,[A-Z].*,(?:Ass|Deass)erted)"
        r"|^ID *[|,] ?Date *[|,] ?Time *[|,] ?Name *[|,] ?Type"
        r"|^\d{1,5} *\| [A-Z][a-z]{2}-\d\d-\d{4} \| \d\d:\d\d:\d\d \| ",
        re.ASCII,
    ),
)

"""Raw log lines to events, on the server: for senders that cannot run the sidecar.

<4>2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, ...      a line
{"date": 1740801906.789, "host": "gpu-017", "log": "NVRM: Xid (PCI:0000:0f:00): 79, ..."}     Fluent Bit, rsyslog
{"__REALTIME_TIMESTAMP": "1740801906789000", "_HOSTNAME": "gpu-017", "MESSAGE": "NVRM: ..."}  journald
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import orjson

from api.edge.problem import Problem
from api.edge.work_budget import (
    MOST_HOSTS,
    MOST_LINES,
    MOST_RECORDS,
    check_containers,
    check_lines,
    too_many_records,
    worked,
)
from api.intake.entries import OWN_LINES, TEXT_KEYS, BodyEntry, Rejected, records, without_nul
from api.intake.otlp import json_log_entries
from parsers.registry import MIXED, PARSERS, SAMPLE_LINES, make_parser, recogniser
from parsers.site_rules.rules import RulesSource
from parsers.text.parser import MAX_LINE, Context, Parser, clean, guarded
from parsers.text.scan import LineSelector, by_re2
from parsers.trust import RefusedLineError, in_container, writer_trust
from store.events.event_json import MAX_NAME, check_size
from store.records.event import EPOCH, Event, RecordError, parse_time
from store.records.event_sources import Trust, may_tell, narrower

# The JSON in which log shippers wrap lines, unwrapped: text, host and time of each record.
#
# {"date": 1740801906.789, "host": "gpu-017", "log": "NVRM: Xid ..."}                       Fluent Bit, in every json
# kind
# {"records": [{"value": {"host": "gpu-017", "message": "NVRM: Xid ..."}}]}                 rsyslog's omhttp, kafkarest
# {"streams": [{"stream": {"host": "gpu-017"}, "values": [["1740801906789000000", "..."]]}]}      the same, lokirest
# {"__REALTIME_TIMESTAMP": "1740801906789000", "_HOSTNAME": "gpu-017", "MESSAGE": "..."}           journald
# {"resourceLogs": [{"resource": ..., "scopeLogs": [{"logRecords": [...]}]}]}                      OTLP, see otlp.py

_WRAPPED = frozenset({*TEXT_KEYS, "records", "streams", "resourceLogs"})
_HOST = ("host", "hostname", "_HOSTNAME", "HOSTNAME", "HOST", "fromhost")
_TIME = ("date", "@timestamp", "time", "timestamp", "timereported", "ISODATE")
# Who wrote a record.
_TAG = ("SYSLOG_IDENTIFIER", "ident", "PROGRAM", "syslogtag", "programname", "app-name")
_WRITER = (
    *("_TRANSPORT", "_UID", "_COMM", "_EXE", "SYSLOG_FACILITY", "FACILITY", "facility", "syslogfacility"),
    *("syslogfacility-text", "facility-text", "pri", "PRI", "syslogpri"),
)
_MICROS = ("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP")
_JSON_START = (b"{", b"[")
# Seconds since 1970 beyond this are milliseconds: in seconds it is the year 5138.
_MOST_SECONDS = 1e11
_LOOSE = json.JSONDecoder()


def wrapped_records(body: bytes) -> Iterable[BodyEntry] | None:
    """The records of a body of JSON; None for plain lines (a kernel line, too, may begin with a bracket)."""
    text = body.lstrip()
    if not text.startswith(_JSON_START):
        return None
    check_containers(body)
    if text.startswith(b"["):
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        return records(body) if all(isinstance(value, dict) for value in values) else None
    return (inner for entry in records(body) for outer in _apart(entry) for inner in _inside(outer))


def bears_lines(body: bytes) -> bool:
    """Whether the first object of a body of JSON bears a line as its text, or records that do, as shippers wrap them.

    Other JSON is what a program wrote itself: spans, jobs, lines that are objects.
    """
    text = body.lstrip()
    if not text.startswith(_JSON_START):
        return b"}{" in text
    check_containers(body)
    for part in (text, text.split(b"\n", 1)[0]):
        try:
            value = orjson.loads(part)
        except orjson.JSONDecodeError:
            continue
        first = next(iter(value), None) if isinstance(value, list) else value
        return isinstance(first, dict) and bool(first.keys() & _WRAPPED) and not first.keys() & OWN_LINES
    # Several objects in a line, as Fluent Bit's json_stream; an object over many lines wraps nothing.
    return b"}{" in text


def _apart(entry: BodyEntry) -> Iterator[BodyEntry]:
    """The objects that stand one behind the other in a line (Fluent Bit's json_stream); the entry where they do not."""
    if b"}{" not in entry.text:
        yield entry
        return
    line, place = entry.text.decode("utf-8", errors="replace").strip(), 0
    while place < len(line):
        try:
            value, place = _LOOSE.raw_decode(line, place)
            value = without_nul(value)
        except (ValueError, RecursionError):
            yield BodyEntry(entry.line, error=entry.error)  # what is broken hides what follows it, not what went before
            return
        yield BodyEntry(entry.line, value)


def _inside(entry: BodyEntry) -> Iterator[BodyEntry]:
    """The records in a wrapping of rsyslog's; the entry itself where there is none."""
    value = entry.value
    if isinstance(value, dict) and isinstance(value.get("records"), list):
        inner = [record.get("value") if isinstance(record, dict) else record for record in value["records"]]
    elif isinstance(value, dict) and isinstance(value.get("streams"), list):
        inner = [record for stream in value["streams"] for record in _of_stream(stream)]
    elif isinstance(value, dict) and isinstance(value.get("resourceLogs"), list):
        yield from json_log_entries(value)
        return
    else:
        yield entry
        return
    for place, record in enumerate(inner, start=1):
        yield BodyEntry(place, record)


def _of_stream(stream: Any) -> Iterator[Any]:
    """The records of one of Loki's streams: its labels with each line and its time; what is none is a record itself."""
    if not isinstance(stream, dict) or not isinstance(stream.get("values"), list):
        yield stream
        return
    labels = stream["stream"] if isinstance(stream.get("stream"), dict) else {}
    for pair in stream["values"]:
        if isinstance(pair, list) and len(pair) >= 2 and isinstance(pair[0], str) and pair[0].isdecimal():
            yield {**labels, "log": pair[1], "date": int(pair[0][:20]) / 1e9}
        else:
            yield pair


def unwrapped(entry: BodyEntry, node: str | None) -> tuple[str, str | None, datetime | None]:
    """Text, host and time of one JSON record.

    Raises:
        RecordError: it holds no text.
    """
    if not isinstance(entry.value, dict):
        raise RecordError(entry.error or "a record is a JSON object")
    value = entry.value
    text = next((found for key in TEXT_KEYS if (found := _text(value.get(key))) is not None), None)
    if text is None:
        raise RecordError(f"a log record needs one of {', '.join(TEXT_KEYS)}")
    host = next((value[key] for key in _HOST if isinstance(value.get(key), str) and value[key]), node)
    return text, host, _time(value)


def record_trust(value: Mapping[str, Any], given: Trust | None) -> Trust:
    """Whose word a record is: the sender's for what he does not mark, less where its own fields tell who wrote it.

    What he says (`given`) holds for containers' output, too, but not against journald's fields.
    """
    trust = given or ("user" if in_container(value) else "system")
    return narrower(trust, writer_trust(value, tag_of(value)))


def tag_of(value: Mapping[str, Any]) -> str | None:
    """The program that a record names, without its pid."""
    tag = next((value[key] for key in _TAG if isinstance(value.get(key), str) and value[key]), None)
    return None if tag is None else tag.split("[")[0].rstrip(":")


def writer_of(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a record says of its writer: the fields that the parser of kernel logs looks at."""
    said = {key: value[key] for key in _WRITER if key in value}
    if (tag := tag_of(value)) is not None:
        said["SYSLOG_IDENTIFIER"] = tag
    return said


def _text(value: Any) -> str | None:
    """A message: text, or journald's array of bytes."""
    if isinstance(value, list) and all(isinstance(b, int) and 0 <= b < 256 for b in value):
        return bytes(value).decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


def _time(value: Mapping[str, Any]) -> datetime | None:
    """When the record says it was written: journald's microseconds, seconds since 1970, or text."""
    for key in _MICROS:
        if isinstance(value.get(key), str) and value[key].isdecimal():
            return _since_epoch(int(value[key][:18]) / 1e6)
    for key in _TIME:
        found = value.get(key)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return _since_epoch(found / 1000 if found > _MOST_SECONDS else found)
        if isinstance(found, str):
            try:
                return parse_time(found)
            except RecordError:
                continue
    return None


def _since_epoch(seconds: float) -> datetime | None:
    try:
        return EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


def format_of_lines(lines: Sequence[str], trust: Trust | None = None) -> str | None:
    """As `parsers.registry.detect`: the format that lines speak for, MIXED for several, None for none."""
    recognise = recogniser()
    found: set[str] = set()
    in_document = False
    for text in lines:
        name = recognise(text)
        if (
            name is None
            or not may_tell(trust, name)
            or (in_document and text[:1].isspace() and PARSERS[name].shape != "document")
        ):
            continue
        if PARSERS[name].shape == "table":
            return name
        in_document = in_document or PARSERS[name].shape == "document"
        found.add(name)
    return MIXED if len(found) > 1 else next(iter(found), None)


DEFAULT_FORMAT = "kernel"
# Real lines are short: so many bytes hold far more than a format's first.
_SAMPLE_BYTES = 4 * 1024 * 1024
# Formats of lines, not of documents, whose lines may be JSON.
_JSON_LINES = frozenset({"hook", "dlrover", "squeue", "scontrol", "sinfo"})


@dataclass(frozen=True, slots=True)
class LogContext:
    """What the sender says of all lines: format (None: find out), host and run where lines name none, whose word."""

    format: str | None = None
    node: str | None = None
    run: str | None = None
    trust: Trust | None = None


@dataclass(frozen=True, slots=True)
class _LogLine:
    """One line of a record: where the record stands in the body, the time that it says, and who wrote it."""

    entry: int
    text: str
    time: datetime | None
    trust: Trust
    writer: Mapping[str, Any]  # what the record says of that


@dataclass(slots=True)
class LogDecoder:
    """Decodes one body. A parser per host and format, so that what spans lines stays together.

    Each line is looked at once to know its format, all formats at a time; of a format that names its signs only the
    lines of interest are read.
    """

    given: LogContext
    now: datetime
    rules: RulesSource | None = None
    rejected: list[Rejected] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)  # lines whose writer may not say that, by the reason

    def decode(self, body: bytes) -> list[Event]:
        """The events of a body; what cannot be read is in `rejected`.

        Raises:
            Problem: 413, it has too many lines, records or events, or takes too much work; 503, nobody waits for it.
        """
        check_lines(body)
        wrapped = None if self._is_json(body) and not bears_lines(body) else wrapped_records(body)
        return self._in_bounds(self._plain(body)) if wrapped is None else self.decode_records(wrapped)

    def decode_records(self, entries: Iterable[BodyEntry]) -> list[Event]:
        """The same of records that are apart already."""
        return self._in_bounds(self._records(entries))

    def _in_bounds(self, events: Iterable[Event]) -> list[Event]:
        """The events that the table takes, in bounds.

        Raises:
            Problem: 413, there are too many.
        """
        found: list[Event] = []
        for event in events:
            if self._fits(event):
                found.append(self._stamped(event))
            if len(found) > MOST_RECORDS:
                raise too_many_records()
        self.rejected.sort(key=lambda refused: refused.line)
        return found

    def _fits(self, event: Event) -> bool:
        try:
            check_size(event)
        except RecordError as error:
            self._reject(event.line or 0, error)
            return False
        return fits(event)

    def _is_json(self, body: bytes) -> bool:
        """Whether the body's own lines are JSON of a format that is so written."""
        name = self.given.format or format_of_lines(_sample(body), self.given.trust)
        return name is not None and name in PARSERS and (PARSERS[name].shape == "document" or name in _JSON_LINES)

    def _plain(self, body: bytes) -> Iterator[Event]:
        """The events of plain lines."""
        trust = self.given.trust or "system"
        name = self.given.format or format_of_lines(_sample(body), trust) or DEFAULT_FORMAT
        host = self.given.node
        parser = self._parser(host, name, trust)
        for number, text in worked(self._of_interest(name, body)):
            yield from guarded(partial(parser.feed, text, number), number, self._reject)
        for event in guarded(parser.flush, 0, self._reject):
            yield _with_host_and_time(event, host, None)

    def _records(self, entries: Iterable[BodyEntry]) -> Iterator[Event]:
        """The events of JSON records, host by host, each host's in their order."""
        for (host, name, trust), lines in self._grouped(entries).items():
            parser = self._parser(host, name, trust)
            body = "\n".join([line.text for line in lines]).encode()
            for number, text in worked(self._of_interest(name, body)):
                line = lines[number - 1]
                for event in guarded(partial(parser.feed, text, line.entry), line.entry, self._reject):
                    yield _with_host_and_time(event, host, line.time)
            for event in guarded(parser.flush, 0, self._reject):
                yield _with_host_and_time(event, host, None)

    def _grouped(self, entries: Iterable[BodyEntry]) -> dict[tuple[str | None, str, Trust], list[_LogLine]]:
        """The lines of each host, format and trust: the sender's word, the line's own, else that of the one before."""
        groups: dict[tuple[str | None, str, Trust], list[_LogLine]] = {}
        format_of: dict[tuple[str | None, Trust], str] = {}
        recognise = recogniser()
        for host, line in worked(self._lines(entries)):
            found = self.given.format or recognise(line.text[:MAX_LINE])
            who = (host, line.trust)
            if found is not None and (who in format_of or len(format_of) < MOST_HOSTS):
                format_of[who] = found
            name = format_of.get(who, DEFAULT_FORMAT)
            if name == DEFAULT_FORMAT and line.writer:
                line = replace(line, text=orjson.dumps({**line.writer, "MESSAGE": line.text}).decode())
            key = (host, name, line.trust)
            if key not in groups and len(groups) >= MOST_HOSTS:
                raise Problem(413, f"the body speaks of more than {MOST_HOSTS} hosts: send it in parts")
            groups.setdefault(key, []).append(line)
        return groups

    def _lines(self, entries: Iterable[BodyEntry]) -> Iterator[tuple[str | None, _LogLine]]:
        """The lines of JSON records, each with its host."""
        lines = 0
        for number, entry in enumerate(entries):
            if number >= MOST_RECORDS:
                raise too_many_records()
            try:
                text, host, time = unwrapped(entry, self.given.node)
            except RecordError as error:
                self._reject(entry.line, error)
                continue
            lines += text.count("\n") + 1
            if lines > MOST_LINES:
                raise Problem(413, f"the records have more than {MOST_LINES} lines: send them in parts")
            trust, writer = record_trust(entry.value, self.given.trust), writer_of(entry.value)
            for part in text.split("\n"):
                yield host, _LogLine(entry.line, part, time, trust, writer)

    def _of_interest(self, name: str, body: bytes) -> Iterable[tuple[int, str]]:
        """The lines that the format has to read, with their 1-based numbers."""
        searched = self.rules is not None and self.rules().patterns
        pick = None if searched else _picker(name)
        if pick is None:
            return enumerate(map(clean, body.split(b"\n")), start=1)
        return ((place + 1, text) for place, text in pick(body, 0, len(body)).texts)

    def _parser(self, host: str | None, name: str, trust: Trust) -> Parser:
        context = Context(node=host, year=self.now.year, until=self.now, run=self.given.run, trust=trust)
        return make_parser(name, context, self.rules)

    def _reject(self, line: int, error: ValueError) -> None:
        if isinstance(error, RefusedLineError):
            self.refused[error.reason] += 1
        if len(self.rejected) >= MOST_RECORDS:
            raise too_many_records()
        self.rejected.append(Rejected(line, str(error)))

    def _stamped(self, event: Event) -> Event:
        """A fault without a time is happening now: the same line an hour later is another fault, not a repeat."""
        return event if event.time is not None or event.source == "training" else replace(event, time=self.now)


def _sample(body: bytes) -> list[str]:
    """The lines that tell a body's format."""
    return [clean(raw) for raw in body[:_SAMPLE_BYTES].split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES]]


@cache
def _picker(name: str) -> LineSelector | None:
    """What picks the lines of interest of a format; None for one that reads every line."""
    signs = PARSERS[name].signs if name in PARSERS else None
    return None if signs is None else LineSelector(signs, by_re2(signs))


def fits(event: Event) -> bool:
    """Whether the events table takes it. Samples go to the roll-ups of POST /telemetry alone."""
    names = (event.node, event.kind, event.run())
    named = all(name is None or 0 < len(name) <= MAX_NAME for name in names)
    return named and event.kind != "telemetry" and (event.time is None or 1970 <= event.time.year < 9999)


def _with_host_and_time(event: Event, host: str | None, time: datetime | None) -> Event:
    """The event with the host and time of its record, where the line itself says none."""
    return replace(event, node=event.node or host, time=event.time or time)

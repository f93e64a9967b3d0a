"""Raw log lines to events, on the server: for senders that cannot run the sidecar.

<4>2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, ...      a line
{"date": 1740801906.789, "host": "gpu-017", "log": "NVRM: Xid (PCI:0000:0f:00): 79, ..."}     Fluent Bit, rsyslog
{"__REALTIME_TIMESTAMP": "1740801906789000", "_HOSTNAME": "gpu-017", "MESSAGE": "NVRM: ..."}  journald
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from api.body import Entry, records
from api.ingest import Rejected
from parsers.auto import SAMPLE_LINES, detect
from parsers.parser import Context, ParseError, Parser, clean, guarded
from parsers.ruled import make_parser
from parsers.rules import RulesSource
from store.event import Event, RecordError, parse_time
from store.event_json import MAX_NAME

DEFAULT_FORMAT = "kernel"
_TEXT = ("log", "message", "MESSAGE", "msg")
_HOST = ("host", "hostname", "_HOSTNAME", "HOSTNAME", "fromhost")
_TIME = ("date", "@timestamp", "time", "timestamp", "timereported")
_MICROS = ("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP")
_JSON_START = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class Told:
    """What the sender says of all lines: format (None: find out), host and run where lines name none."""

    format: str | None = None
    node: str | None = None
    run: str | None = None


@dataclass(slots=True)
class LogDecoder:
    """Decodes one body. A parser per host and format, so that what spans lines stays together."""

    told: Told
    now: datetime
    rules: RulesSource | None = None
    rejected: list[Rejected] = field(default_factory=list)
    _parsers: dict[tuple[str | None, str], Parser] = field(default_factory=dict)
    _format_of: dict[str | None, str] = field(default_factory=dict)

    def decode(self, body: bytes) -> list[Event]:
        """The events of a body; what cannot be read is in `rejected`."""
        wrapped = _wrapped(body)
        if wrapped is None:
            lines = [clean(raw) for raw in body.split(b"\n")]
            found = self.told.format or detect(lines[:SAMPLE_LINES]) or DEFAULT_FORMAT
            events = [e for n, text in enumerate(lines, start=1) for e in self._feed(n, text, self.told.node, found)]
        else:
            events = [event for entry in wrapped for event in self._record(entry)]
        for (host, _), parser in self._parsers.items():
            events += [_placed(event, host, None) for event in guarded(parser.flush, 0, self._reject)]
        return [self._stamped(event) for event in events if _fits(event)]

    def _record(self, entry: Entry) -> Iterator[Event]:
        """The events of one JSON record: its text may hold several lines."""
        try:
            text, host, time = _unwrapped(entry, self.told.node)
        except RecordError as error:
            self.rejected.append(Rejected(entry.line, str(error)))
            return
        for part in text.split("\n"):
            for event in self._feed(entry.line, clean(part.encode()), host, self._format(host, part)):
                yield _placed(event, host, time)

    def _feed(self, line: int, text: str, host: str | None, name: str) -> Iterator[Event]:
        parser = self._parser(host, name)
        return guarded(lambda: parser.feed(text, line), line, self._reject)

    def _format(self, host: str | None, text: str) -> str:
        """The format that the sender names; else what the line speaks for; else that of the host's line before."""
        found = self.told.format or detect([text])
        if found is not None:
            self._format_of[host] = found
        return self._format_of.get(host, DEFAULT_FORMAT)

    def _parser(self, host: str | None, name: str) -> Parser:
        if (host, name) not in self._parsers:
            context = Context(node=host, year=self.now.year, until=self.now, run=self.told.run)
            self._parsers[host, name] = make_parser(name, context, self.rules)
        return self._parsers[host, name]

    def _reject(self, line: int, error: ParseError) -> None:
        self.rejected.append(Rejected(line, str(error)))

    def _stamped(self, event: Event) -> Event:
        """A fault without a time is happening now: the same line an hour later is another fault, not a repeat."""
        return event if event.time is not None or event.source == "training" else replace(event, time=self.now)


def _fits(event: Event) -> bool:
    """Whether the events table takes it. Samples go to the roll-ups of POST /telemetry alone."""
    names = (event.node, event.kind, event.run())
    named = all(name is None or 0 < len(name) <= MAX_NAME for name in names)
    return named and event.kind != "telemetry" and (event.time is None or 1970 <= event.time.year < 9999)


def _placed(event: Event, host: str | None, time: datetime | None) -> Event:
    """The event with the host and time of its record, where the line itself says none."""
    return replace(event, node=event.node or host, time=event.time or time)


def _wrapped(body: bytes) -> Iterable[Entry] | None:
    """The records of a body of JSON; None for plain lines (a kernel line, too, may begin with a bracket)."""
    text = body.lstrip()
    if not text.startswith(_JSON_START):
        return None
    if text.startswith(b"["):
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        return records(body) if all(isinstance(value, dict) for value in values) else None
    return records(body)


def _unwrapped(entry: Entry, node: str | None) -> tuple[str, str | None, datetime | None]:
    """Text, host and time of one JSON record.

    Raises:
        RecordError: it holds no text.
    """
    if not isinstance(entry.value, dict):
        raise RecordError(entry.error or "a record is a JSON object")
    value = entry.value
    text = next((found for key in _TEXT if (found := _text(value.get(key))) is not None), None)
    if text is None:
        raise RecordError(f"a log record needs one of {', '.join(_TEXT)}")
    host = next((value[key] for key in _HOST if isinstance(value.get(key), str) and value[key]), node)
    return text, host, _time(value)


def _text(value: Any) -> str | None:
    """A message: text, or journald's array of bytes."""
    if isinstance(value, list) and all(isinstance(b, int) and 0 <= b < 256 for b in value):
        return bytes(value).decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


def _time(value: Mapping[str, Any]) -> datetime | None:
    """When the record says it was written: journald's microseconds, seconds since 1970, or text."""
    for key in _MICROS:
        if isinstance(value.get(key), str) and value[key].isdigit():
            return _since_epoch(int(value[key][:18]) / 1e6)
    for key in _TIME:
        told = value.get(key)
        if isinstance(told, int | float) and not isinstance(told, bool):
            return _since_epoch(told)
        if isinstance(told, str):
            try:
                return parse_time(told)
            except RecordError:
                continue
    return None


def _since_epoch(seconds: float) -> datetime | None:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return None

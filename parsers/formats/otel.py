"""OpenTelemetry spans of a training program: OTLP as JSON, as the collector's file exporter writes and OTLP/HTTP posts.

    {"resourceSpans": [{"resource": {"attributes": [{"key": "foreshock.run", "value": {"stringValue": "run-7"}}]},
     "scopeSpans": [{"spans": [{"name": "training_single_iteration", "startTimeUnixNano": "1740801906789000000",
     "endTimeUnixNano": "1740801907106000000", "attributes": [{"key": "iteration", "value": {"intValue": "100"}}]}]}]}]}
    -> {"kind": "iteration", "time": "2025-03-01T04:05:07.106Z", "attributes": {"run": "run-7", "iteration": 100, ...}}

There is no public convention of training spans; names are those of NVIDIA's one-logger (spans.py of
NVIDIA/nv-one-logger) and what programs commonly call them: `_SPANS`. A span of data loading within an iteration is part
of it (`data_ms`). A span is reported when it ends: what a killed program had begun is not there.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from parsers.text.documents import Document, DocumentParser, object_of
from parsers.text.json_fields import (
    MAX_MESSAGE,
    attributes,
    plain,
    record_of,
    records_of,
    text_of,
    whole_of,
)
from parsers.text.parser import Context, Format
from parsers.training.error_report import variant_of
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning

# A span's name, in small letters and parted by underscores -> what it is.
_SPANS: Mapping[str, str] = {
    **dict.fromkeys(
        ("training_single_iteration", "iteration", "step", "train_step", "training_step", "train_iteration"), "step"
    ),
    **dict.fromkeys(("checkpoint_save_sync", "checkpoint_save", "save_checkpoint", "save"), "save"),
    "checkpoint_save_async": "save_async",
    "checkpoint_save_finalization": "save_done",
    **dict.fromkeys(("checkpoint_load", "load_checkpoint", "restore_checkpoint", "checkpoint_restore", "load"), "load"),
    **dict.fromkeys(("validation_loop", "testing_loop", "evaluation", "evaluate", "validation", "eval"), "eval"),
    **dict.fromkeys(("data_loading", "data_wait", "dataloader", "next_batch", "get_batch", "load_batch"), "data"),
    **dict.fromkeys(("distributed_code_initialization", "startup"), "start"),  # what a program begins with
    **dict.fromkeys(
        (
            "data_loader_initialization",
            "model_initialization",
            "optimizer_initialization",
            "rendezvous",
            "compile",
            "compilation",
        ),
        "phase",
    ),
}
_ITERATION = ("foreshock.iteration", "iteration", "global_step", "step", "current_iteration", "train_iteration")
_RUN = ("foreshock.run", "ml.run", "run", "run_name", "run_id", "job_name")
_NODE = ("host.name", "k8s.node.name", "node_name")
# Waits for data whose iteration has not ended yet, and saves in the background; the oldest are forgotten.
MAX_WAITING = 4096
_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class _OtelSpan:
    """A span with the attributes of its resource, scope and own."""

    name: str
    what: str | None
    start: datetime
    end: datetime
    own: str
    parent: str
    fields: Mapping[str, Attribute]
    line: int

    @property
    def lasted_ms(self) -> float:
        """Its length."""
        return round((self.end - self.start).total_seconds() * 1000, 3)


class _OpenSaves:
    """Saves in the background that are not safe yet, the oldest first; each is found at once by its iteration."""

    def __init__(self) -> None:
        self._spans: OrderedDict[int, _OtelSpan] = OrderedDict()  # by a running number
        self._numbers: dict[Attribute, deque[int]] = {}  # of each iteration, the oldest first
        self._next = 0

    def add(self, span: _OtelSpan) -> None:
        """Another; beyond MAX_WAITING the oldest is forgotten."""
        self._spans[self._next] = span
        self._numbers.setdefault(_first(span.fields, _ITERATION), deque()).append(self._next)
        self._next += 1
        if len(self._spans) > MAX_WAITING:
            self._take_first(next(iter(self._spans)))

    def take(self, iteration: Attribute) -> _OtelSpan | None:
        """That of an iteration, else the oldest; None where there is none."""
        numbers = None if iteration is None else self._numbers.get(iteration)
        number = numbers[0] if numbers else next(iter(self._spans), None)
        return None if number is None else self._take_first(number)

    def _take_first(self, number: int) -> _OtelSpan:
        """Take one out that is the oldest of its iteration."""
        span = self._spans.pop(number)
        iteration = _first(span.fields, _ITERATION)
        numbers = self._numbers[iteration]
        numbers.popleft()
        if not numbers:
            del self._numbers[iteration]
        return span


class OtelParser:
    """Decodes spans. Holds waits for data till their iteration ends, and saves in the background till they are safe."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._documents = DocumentParser(self._document, lists=("spans",))
        self._waits: OrderedDict[str, list[_OtelSpan]] = OrderedDict()
        self._waiting = 0  # how many those are
        self._saves = _OpenSaves()

    def feed(self, text: str, line: int) -> Iterator[Event]:
        """The events of the spans of a line. One that is cut short tells the spans that were whole.

        Raises:
            ParseError: the JSON is broken.
        """
        whole = object_of(text.strip()) if '"resourceSpans"' in text else None
        if whole is None:
            yield from self._documents.feed(text, line)
            return
        for resource in records_of(whole, "resourceSpans"):
            above = _attributes(record_of(resource, "resource"))
            for scope in records_of(resource, "scopeSpans"):
                for span in records_of(scope, "spans"):
                    yield from self._span(span, above, line)

    def flush(self) -> Iterator[Event]:
        """Waits for data that no iteration took up.

        Raises:
            ParseError: the last document is cut short.
        """
        waits, self._waits, self._waiting = self._waits, OrderedDict(), 0
        for spans in waits.values():
            for span in spans:
                yield self._event(span, "data_wait", {"duration_ms": span.lasted_ms})
        yield from self._documents.flush()

    def _document(self, document: Document) -> Iterable[Event]:
        """A span out of a list over many lines: what stood before the list is of its resource."""
        resources = records_of(document.header, "resourceSpans")
        above = _attributes(record_of(resources[-1], "resource")) if resources else {}
        return self._span(document.value, above, document.line)

    def _span(self, record: Mapping[str, Any], above: Mapping[str, Attribute], line: int) -> Iterator[Event]:
        start, end = (_moment(record.get(key)) for key in ("startTimeUnixNano", "endTimeUnixNano"))
        name = text_of(record, "name")
        if name is None or start is None or end is None or end < start:
            return
        fields = {**above, **_attributes(record)}
        what = _SPANS.get(_NAME.sub("_", name.lower()).strip("_").removeprefix("foreshock_"))
        span = _OtelSpan(
            name, what, start, end, text_of(record, "spanId") or "", text_of(record, "parentSpanId") or "", fields, line
        )
        yield from self._errors(record, span)
        if what is not None:
            yield from self._span_events(span)

    def _span_events(self, span: _OtelSpan) -> Iterator[Event]:
        iteration = attributes(iteration=_first(span.fields, _ITERATION))
        lasted = {**iteration, "duration_ms": span.lasted_ms}
        if span.what == "step":
            yield self._step(span, iteration)
        elif span.what == "data":
            self._waits.setdefault(span.parent, []).append(span)
            self._waiting += 1
            while self._waiting > MAX_WAITING:
                self._waiting -= len(self._waits.popitem(last=False)[1])
        elif span.what in ("save", "save_async"):
            yield from self._save(span, iteration)
        elif span.what == "save_done":
            yield self._saved(span, iteration)
        elif span.what in ("phase", "start"):
            if span.what == "start":
                yield self._event(span, "training_start", {}, at=span.start)
            yield with_kind_meaning(
                self._event(span, "training_phase", {"phase": span.name[:100], "duration_ms": span.lasted_ms})
            )
        else:
            yield self._event(span, "checkpoint_load" if span.what == "load" else "evaluation", lasted)

    def _step(self, span: _OtelSpan, iteration: Mapping[str, Attribute]) -> Event:
        """An iteration, with the waits for data within it."""
        count = whole_of(span.fields.get("iterations")) or 1
        waits = self._waits.pop(span.own, [])
        self._waiting -= len(waits)
        waited = sum(wait.lasted_ms for wait in waits)
        fields = attributes(
            iterations=count,
            elapsed_ms=round(span.lasted_ms / count, 6),
            data_ms=round(waited / count, 6) if waited else None,
        )
        return self._event(span, "iteration", {**iteration, **fields})

    def _save(self, span: _OtelSpan, iteration: Mapping[str, Attribute]) -> Iterator[Event]:
        """A save, or what one that goes on in the background stalled."""
        strategy = str(span.fields.get("checkpoint_strategy", "")).lower().rpartition(".")[2]
        background = span.what == "save_async" or strategy == "async"
        mode = attributes(**{"async": True, "blocking_ms": span.lasted_ms}) if background else {}
        yield self._event(span, "checkpoint_save_start", {**iteration, **mode}, at=span.start)
        if background:
            self._saves.add(span)
        else:
            yield self._event(span, "checkpoint_save", {**iteration, "duration_ms": span.lasted_ms})

    def _saved(self, span: _OtelSpan, iteration: Mapping[str, Attribute]) -> Event:
        """A save in the background is safe: that of its iteration, else the oldest one."""
        begun = self._saves.take(iteration.get("iteration"))
        if begun is None:
            return self._event(span, "checkpoint_save", {**iteration, "async": True})
        known = attributes(iteration=_first(begun.fields, _ITERATION), blocking_ms=begun.lasted_ms)
        return self._event(span, "checkpoint_save", {**iteration, **known, "async": True})

    def _errors(self, record: Mapping[str, Any], span: _OtelSpan) -> Iterator[Event]:
        """Exceptions that ended a span."""
        failed = record_of(record, "status").get("code") in (2, "STATUS_CODE_ERROR")
        for event in records_of(record, "events") if failed else ():
            fields = _attributes(event)
            name = text_of(fields, "exception.type")
            if text_of(event, "name") == "exception" and name is not None:
                words = text_of(fields, "exception.message") or name
                at = _moment(event.get("timeUnixNano")) or span.end
                found = self._event(span, "training_error", attributes(error=name), at=at)
                yield with_kind_meaning(replace(found, message=words[:MAX_MESSAGE]), variant_of(name, words))

    def _event(self, span: _OtelSpan, kind: str, fields: Mapping[str, Attribute], at: datetime | None = None) -> Event:
        run = self._context.run or _text(span.fields, (*_RUN, "service.name"))
        rank = attributes(rank=_first(span.fields, ("rank", "foreshock.rank")))
        return Event(
            time=at or span.end,
            node=_text(span.fields, _NODE) or self._context.node,
            source="otel",
            kind=kind,
            message=span.name[:MAX_MESSAGE],
            attributes={**attributes(run=run), **fields, **rank},
            line=span.line,
        )


def _attributes(record: Mapping[str, Any]) -> dict[str, Attribute]:
    """The attributes of a span, a resource or an event; whole numbers are texts in OTLP's JSON."""
    found: dict[str, Attribute] = {}
    for one in records_of(record, "attributes"):
        key, value = text_of(one, "key"), record_of(one, "value")
        if key is not None and value:
            kind, inner = next(iter(value.items()))
            found[key] = whole_of(inner) if kind == "intValue" else plain(inner)
    return found


def _first(fields: Mapping[str, Attribute], keys: Iterable[str]) -> int | None:
    return next((number for key in keys if (number := whole_of(fields.get(key))) is not None), None)


def _text(fields: Mapping[str, Attribute], keys: Iterable[str]) -> str | None:
    return next((str(fields[key]) for key in keys if fields.get(key) not in (None, "")), None)


def _moment(value: object) -> datetime | None:
    """A time in nanoseconds since 1970, as a text or a number."""
    nanos = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value
    if isinstance(nanos, bool) or not isinstance(nanos, int) or not 0 < nanos < 2**63:
        return None
    try:
        return datetime.fromtimestamp(nanos // 1_000_000_000, UTC).replace(microsecond=nanos // 1000 % 1_000_000)
    except (ValueError, OverflowError, OSError):
        return None


FORMAT = Format(
    name="otel",
    description="OpenTelemetry spans of a training program: OTLP as JSON",
    sample='{"resourceSpans": [{"resource": {"attributes": [{"key": "foreshock.run", "value": {"stringValue": '
    '"run-7"}}]}, "scopeSpans": [{"spans": [{"spanId": "eee19b7ec3c1b174", "name": "training_single_iteration", '
    '"startTimeUnixNano": "1740801906789000000", "endTimeUnixNano": "1740801907106000000", '
    '"attributes": [{"key": "iteration", "value": {"intValue": "100"}}]}]}]}]}',
    make=OtelParser,
    testimony="iterations",
    recognises=re.compile(r'"(?:resourceSpans|scopeSpans|startTimeUnixNano)" ?:'),
    shape="document",
)

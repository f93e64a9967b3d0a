"""Training events of DLRover: spans and moments of the trainer, its agents and its master, as text or as JSON lines.

    [2025-03-01T04:05:06.789000] [1a2b3c4d] [Trainer] [#save] [END] {"global_step": 1200, "success": true}
    -> {"kind": "checkpoint_save", "time": "2025-03-01T04:05:06.789Z", "attributes": {"iteration": 1200, ...}, ...}

Forms and names: dlrover/python/training_event (event.py, predefined/, error_handler.py) of DLRover,
intelligent-machine-learning/dlrover. Times are local, without a zone. A span's END bears its BEGIN's id, so its length
is known; one that persists a checkpoint in the background stalls no one: its length is `persist_ms`.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from parsers.text.documents import Document, DocumentParser, object_of
from parsers.text.json_fields import MAX_MESSAGE, attributes, plain, record_of, text_of, whole_of
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from parsers.training.error_report import variant_of
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning

# Spans begun and not ended; the oldest are forgotten.
MAX_SPANS = 4096
_TEXT = re.compile(
    r"\[(?P<event_time>\d{4}-\d{2}-\d{2}T[\d:.]{8,15}(?:[+-]\d{2}:\d{2})?)\] \[(?P<event_id>[^\]]{0,64})\] "
    r"\[(?P<target>[^\]]{0,100})\] \[(?P<name>[^\]]{1,100})\] \[(?P<event_type>BEGIN|END|INSTANT)\] (?P<content>\{.*)",
    re.ASCII | re.DOTALL,
)
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}(?P<name>[A-Za-z_]\w{0,60})(?:: (?P<text>.*))?", re.ASCII | re.DOTALL
)
# Signals that someone sends to stop a program, and those that say nothing of its end.
_STOPS, _IDLE = frozenset({"SIGTERM", "SIGINT", "SIGHUP"}), frozenset({"SIGCHLD", "SIGPIPE"})
_FAILED = frozenset({"failed", "breakdown"})
# Phases of the launcher, its master and the trainer's own start.
_STATES = frozenset(
    {
        "init",
        "load_dataset",
        "rendezvous",
        "network_check",
        "elastic_train",
        "node_join",
        "pod_create",
        "pod_relaunch",
        "fault_detect",
        "repair",
        "exit",
        "start",
    }
)


@dataclass(frozen=True, slots=True)
class _DlroverRecord:
    """One event as DLRover writes it; `name` without its number sign and the span around it."""

    time: datetime | None
    id: str
    target: str
    name: str
    type: str
    content: Mapping[str, Any]
    line: int
    span_ms: float | None = None

    def iteration(self) -> dict[str, Attribute]:
        """The step that it speaks of."""
        return attributes(iteration=whole_of(self.content.get("global_step")))


class DlroverParser:
    """Decodes events. Holds when each open span began."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._documents = DocumentParser(self._document)
        self._spans: OrderedDict[tuple[str, str], datetime] = OrderedDict()

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line.

        Raises:
            ParseError: its content is no whole JSON.
        """
        match = _TEXT.match(text)
        if match is None:
            return self._documents.feed(text, line)
        content = object_of(match["content"])
        if content is None:
            raise ParseError(f"the content of event {match['name']} is no JSON: the line may be cut short")
        return self._read({**match.groupdict(), "content": content}, line)

    def flush(self) -> Iterable[Event]:
        """What a broken line held back.

        Raises:
            ParseError: the last document is cut short.
        """
        return self._documents.flush()

    def _document(self, document: Document) -> Iterable[Event]:
        return self._read(document.value, document.line)

    def _read(self, found: Mapping[str, Any], line: int) -> list[Event]:
        name, kind = text_of(found, "name"), text_of(found, "event_type")
        stamp = text_of(found, "event_time")
        if name is None or stamp is None or kind not in ("BEGIN", "END", "INSTANT"):
            return []
        time = self._stamps.iso(stamp)
        identity, target = text_of(found, "event_id") or "", text_of(found, "target") or ""
        span_ms = self._span((target, identity), kind, time)
        bare = name.rpartition("#")[2]
        record = _DlroverRecord(time, identity, target, bare, kind, record_of(found, "content"), line, span_ms)
        return list(self._events(record))

    def _span(self, key: tuple[str, str], kind: str, time: datetime | None) -> float | None:
        """How long the span has lasted that ends here."""
        if kind == "BEGIN" and time is not None:
            self._spans[key] = time
            if len(self._spans) > MAX_SPANS:
                self._spans.popitem(last=False)
        begun = self._spans.pop(key, None) if kind == "END" else None
        if begun is None or time is None or time < begun:
            return None
        return round((time - begun).total_seconds() * 1000, 3)

    def _events(self, record: _DlroverRecord) -> Iterator[Event]:
        content = record.content
        if content.get("success") is False and (error := text_of(content, "error")):
            yield self._error(record, "span_failed", f"{record.name}: {error.partition(chr(10))[0]}", error)
            return
        of_launcher = record.target.startswith("dlrover-")
        if not of_launcher and (mapped := _TRAINER.get((record.name, record.type))):
            kind, fields = mapped
            yield self._event(record, kind, f"{record.name} {record.type.lower()}", fields(record))
        elif record.name in ("exception", "exit_sig"):
            yield from self._ended(record)
        elif record.name == "process_restart":
            message = _words(content.get("errmsg")) or "training processes are restarted"
            values = attributes(
                error="process_restart", restarts=content.get("restart_round"), pod=content.get("pod_name")
            )
            yield self._event(record, "training_restart", message, values)
        elif record.name == "pod_change" and (text_of(content, "to_state") or "").lower() in _FAILED:
            values = attributes(state=content.get("to_state"), pod=content.get("pod_name"))
            yield self._event(record, "pod_failed", f"pod {text_of(content, 'pod_name') or '?'} failed", values)
        elif record.name in _STATES:
            values = attributes(
                state=f"{record.name} {record.type.lower()}",
                reason=content.get("reason"),
                round=content.get("round_num"),
                pod=content.get("pod_name"),
                duration_ms=record.span_ms,
            )
            yield self._event(record, "training_phase", f"{record.target} {record.name} {record.type.lower()}", values)

    def _ended(self, record: _DlroverRecord) -> Iterator[Event]:
        """What DLRover's handler saw of the program's end: an exception, or a signal."""
        stack = record.content.get("stack")
        if record.name == "exit_sig":
            signal = text_of(record.content, "sig_name") or f"signal {plain(record.content.get('sig'))}"
            if signal not in _IDLE:
                variant = "ended" if signal in _STOPS else ""
                yield self._event(record, "training_error", f"ended by {signal}", {"error": signal}, variant)
            return
        lines = (
            [part.strip() for part in stack if isinstance(part, str)] if isinstance(stack, list) else [_words(stack)]
        )
        last = next((part for part in reversed(lines) if part), "exception")
        match = _RAISED.match(last)
        yield self._error(record, match["name"] if match else "exception", last, last)

    def _error(self, record: _DlroverRecord, name: str, message: str, words: str) -> Event:
        values = {**attributes(error=name, pid=whole_of(record.content.get("pid"))), **record.iteration()}
        return self._event(record, "training_error", message, values, variant_of(name, words))

    def _event(
        self, record: _DlroverRecord, kind: str, message: str, values: Mapping[str, Attribute], variant: str = ""
    ) -> Event:
        node = text_of(record.content, "node_name") or self._context.node
        known = {"run": self._context.run, **values, "detector": "dlrover", "check": f"{record.target}#{record.name}"}
        event = Event(
            time=record.time,
            node=node,
            source="dlrover",
            kind=kind,
            message=message[:MAX_MESSAGE],
            attributes=known,
            line=record.line,
        )
        return with_kind_meaning(event, variant) if kind in _JUDGED else event


_JUDGED = frozenset({"training_error", "training_restart", "training_phase", "pod_failed"})


def _lasted(record: _DlroverRecord) -> dict[str, Attribute]:
    return {**record.iteration(), **attributes(duration_ms=record.span_ms)}


def _stepped(record: _DlroverRecord) -> dict[str, Attribute]:
    return {**record.iteration(), "iterations": 1, **attributes(elapsed_ms=record.span_ms)}


def _persisted(record: _DlroverRecord) -> dict[str, Attribute]:
    return {**record.iteration(), "async": True, **attributes(persist_ms=record.span_ms)}


def _unmarked(_record: _DlroverRecord) -> dict[str, Attribute]:
    return {}


def _persisting(record: _DlroverRecord) -> dict[str, Attribute]:
    return {**record.iteration(), "async": True}


# The trainer's events that mean what a training log's lines mean.
_TRAINER: Mapping[tuple[str, str], tuple[str, Callable[[_DlroverRecord], dict[str, Attribute]]]] = {
    ("train", "BEGIN"): ("training_start", _unmarked),
    ("finish", "INSTANT"): ("training_end", _unmarked),
    ("step", "END"): ("iteration", _stepped),
    ("load_ckpt", "END"): ("checkpoint_load", _lasted),
    ("save", "BEGIN"): ("checkpoint_save_start", _DlroverRecord.iteration),
    ("save", "END"): ("checkpoint_save", _lasted),
    ("persist_ckpt", "BEGIN"): ("checkpoint_save_start", _persisting),
    ("persist_ckpt", "END"): ("checkpoint_save", _persisted),
    ("evaluate", "END"): ("evaluation", _lasted),
}


def _words(value: object) -> str:
    """A text, or what an object of texts holds."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {plain(part)}" for key, part in value.items())
    return value.strip() if isinstance(value, str) else ""


FORMAT = Format(
    name="dlrover",
    description="Training events of DLRover",
    sample='[2025-03-01T04:05:06.789000] [1a2b3c4d] [Trainer] [#save] [END] {"global_step": 1200, "success": true}',
    make=DlroverParser,
    testimony="iterations",
    recognises=re.compile(
        r'"event_type" ?: ?"(?:BEGIN|END|INSTANT)"|^\[\d{4}-[\dT:.+-]+\] \[[^\]]*\] \[[^\]]*\] '
        r"\[[^\]]*\] \[(?:BEGIN|END|INSTANT)\] \{"
    ),
)

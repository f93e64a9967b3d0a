"""The records of a request's body, each with its line: those that fit, and the rest with the reason.

events, rejected = events_of(body, caller)
rollups, rejected = sift(records(body), read_rollup)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from api.edge.problem import Problem
from api.edge.work_budget import MOST_RECORDS, check_containers, check_lines, limited, too_many_records
from store.events.event_json import MAX_MESSAGE, MAX_NAME, check_size, decode_events
from store.records.event import Event, RecordError, check_time, from_wire, with_id
from store.records.event_sources import FLEET_KINDS, FLEET_SOURCES, WORK

if TYPE_CHECKING:
    from api.edge.auth import Caller
    from api.server.metrics import Metrics

MAX_REJECTED_SHOWN = 100
# Where shippers put a record's text.
TEXT_KEYS = ("log", "message", "MESSAGE", "msg")
# Objects that bear a message and are no wrapping: a line of the training hook, an event of Kubernetes.
OWN_LINES = frozenset({"foreshock_hook", "involvedObject", "regarding"})
_NUL = b"\\u0000"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BodyEntry:
    """One record of a body: its 1-based line (or place in the array), and its value or why there is none.

    `text` is the line where it is no JSON: there may be several objects in it.
    """

    line: int
    value: Any = None
    error: str | None = None
    text: bytes = b""


def records(body: bytes) -> Iterator[BodyEntry]:
    """The JSON values of a body: a JSON array, one JSON value a line (NDJSON), or one JSON object.

    A line that is no JSON is an entry with an error.

    Raises:
        Problem: 400 when the body is an array that is broken: its records cannot be separated. 413 when it has more
            lines, objects and lists than any real one.
    """
    check_containers(body)
    text = body.strip()
    if text.startswith(b"["):
        yield from _array(text)
        return
    single = _object(text)
    if single is not None:
        yield _entry(1, single, _NUL in text)
        return
    check_lines(body)
    for number, line in enumerate(body.split(b"\n"), start=1):
        if line.strip():
            yield _line(number, line)


def _array(text: bytes) -> Iterator[BodyEntry]:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem(400, f"the body is a broken JSON array: {error}; send one object a line instead") from error
    has_nul = _NUL in text  # searched once, not for every record
    for number, value in enumerate(values, start=1):
        yield _entry(number, value, has_nul)


def _object(text: bytes) -> dict[str, Any] | None:
    """The one object that a body is, written over several lines; None when it is anything else."""
    if not text.startswith(b"{") or b"\n" not in text:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _line(number: int, line: bytes) -> BodyEntry:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return BodyEntry(number, error=f"no JSON: {error}", text=line)
    return _entry(number, value, _NUL in line)


def _entry(number: int, value: Any, has_nul: bool) -> BodyEntry:
    """The entry of a value; `has_nul` says whether a NUL stood in the text that it comes from."""
    try:
        return BodyEntry(number, without_nul(value) if has_nul else value)
    except RecursionError:
        return BodyEntry(number, error="it is nested too deeply: flatten it")


def without_nul(value: Any) -> Any:
    """The value with NUL characters taken out: PostgreSQL refuses a whole batch for one."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that was left out, by its line, and why."""

    line: int
    detail: str


@dataclass(frozen=True, slots=True)
class Denied(Rejected):
    """A record that its sender may not report. The underscore keeps the reason out of the answer's JSON."""

    _reason: str = "node"

    def count(self, metrics: Metrics, resource: str) -> None:
        """Count it by its reason."""
        metrics.denied.labels(resource, self._reason).inc()


class ForeignRecordError(RecordError):
    """A record of another node than the caller's (`node`), or of the fleet (`fleet`)."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


def rejection(line: int, error: RecordError) -> Rejected:
    """The record of a line, left out for an error."""
    if isinstance(error, ForeignRecordError):
        return Denied(line, str(error), error.reason)
    return Rejected(line, str(error))


def count_rejected(metrics: Metrics, resource: str, rejected: Sequence[Rejected]) -> None:
    """Count records that were left out, and apart from the others those that their sender may not report."""
    metrics.rejected.labels(resource).inc(len(rejected))
    for entry in rejected:
        if isinstance(entry, Denied):
            entry.count(metrics, resource)


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """What became of a body: new records, known ones, and those left out (the first hundred are named)."""

    accepted: int
    known: int
    rejected: Sequence[Rejected]


def sift(entries: Iterable[BodyEntry], read: Callable[[Any], T]) -> tuple[list[T], list[Rejected]]:
    """The entries that `read` takes, and the rest with the reason; at most MOST_RECORDS.

    Raises:
        Problem: 413, there are more, or they take too much work; 503, nobody waits for them any more.
    """
    good: list[T] = []
    bad: list[Rejected] = []
    for entry in limited(entries):
        if entry.error is not None:
            bad.append(Rejected(entry.line, entry.error))
            continue
        try:
            good.append(read(entry.value))
        except RecordError as error:
            bad.append(rejection(entry.line, error))
    return good, bad


def read_event(value: Any) -> Event:
    """The event of a wire object.

    Raises:
        RecordError: it is no object, or a field does not fit.
    """
    if not isinstance(value, dict):
        raise RecordError(f"a record is a JSON object, not {type(value).__name__}")
    event = from_wire(value)
    if event.kind == "telemetry":
        raise RecordError("samples are no events: send roll-ups to POST /api/v1/telemetry")
    names = {"id": event.id, "node": event.node, "source": event.source, "kind": event.kind, "run": event.run()}
    for field, text in names.items():
        check_name(field, text)
    if len(event.message) > MAX_MESSAGE:
        raise RecordError(f"'message' is over {MAX_MESSAGE} characters: cut it")
    if event.time is not None:
        check_time("time", event.time)
    check_size(event)
    return event


def check_name(field: str, text: str | None) -> None:
    """Refuse a name that no index can hold."""
    if text is not None and not 0 < len(text) <= MAX_NAME:
        raise RecordError(f"{field!r} must have 1 to {MAX_NAME} characters")


def events_of(body: bytes, caller: Caller) -> tuple[list[Event], list[Rejected]]:
    """The events of a body: all at once where every record fits, else one by one, with the bad ones named.

    Raises:
        Problem: 400 when the body is an array that is broken; 413 when it has too many records.
    """
    check_containers(body)
    fitting = decode_events(body)
    if fitting is not None and len(fitting) > MOST_RECORDS:
        raise too_many_records()
    named = None if fitting is None else _named(caller, fitting)
    if named is not None and all(is_own(caller, event) for event in named):
        caller.count(event.node for event in named)
        return named if _sender(caller) is None else [sent_by(caller, event) for event in named], []
    events, rejected = sift(records(body), lambda value: own_event(caller, read_event(value)))
    caller.count(event.node for event in events)
    return events, rejected


def _named(caller: Caller, events: list[Event]) -> list[Event] | None:
    """The events, each of its node by the name that the inventory has; None where a name is no node's."""
    canonical = caller.names.canonical
    try:
        names = {node: canonical(node) for node in {event.node for event in events} if node is not None}
    except RecordError:
        return None
    if all(node == name for node, name in names.items()):
        return events
    return [event if event.node is None else replace(event, node=names[event.node]) for event in events]


def is_own(caller: Caller, event: Event) -> bool:
    """Whether a caller may report an event.

    A node speaks for itself: its kernel, devices, exporters and programs. What a program says of its work may name no
    node. Fabric, switches, schedulers and alerts speak of others, and take the scope ingest:fleet.
    """
    if caller.may("ingest:fleet") and caller.nodes.is_every:
        return True
    if event.node is not None and not caller.speaks_for(event.node):
        return False
    if event.time is not None and is_too_old(caller, event.time):
        return False
    if event.source in FLEET_SOURCES or event.kind in FLEET_KINDS:
        return caller.may("ingest:fleet")
    return event.node is not None or event.source in WORK or caller.speaks_for(None)


def own_event(caller: Caller, event: Event) -> Event:
    """The event, where a caller may report it, of its node by the name that the inventory has.

    Raises:
        RecordError: its node is no node's name; it speaks of another node, or of the fleet.
    """
    if event.node is not None:
        name = caller.names.canonical(event.node)
        event = event if name == event.node else replace(event, node=name)
    if is_own(caller, event):
        return sent_by(caller, event)
    if event.node is not None:
        own_node(caller, event.node)
    if event.time is not None:
        check_age(caller, event.time)
    what = "an event without a node" if event.node is None else f"kind {event.kind} of source {event.source}"
    text = f"{what} speaks of the fleet: token {caller.name!r} lacks the scope ingest:fleet"
    raise ForeignRecordError(text, "fleet")


# What a program says of its job's ranks: whom others wait for is nothing that a node of another job knows.
_OF_RANKS = frozenset({"collective_wait", "rank_progress", "straggler"})


def sent_by(caller: Caller, event: Event) -> Event:
    """The event; a word about ranks that names no node with the `sender`, the one node that its token is of."""
    if event.node is not None or event.kind not in _OF_RANKS:
        return event
    sender = _sender(caller)
    if sender is None:
        return event
    known = with_id(event)  # the same line has the same id, whoever brings it
    return replace(known, attributes={**event.attributes, "sender": sender})


def _sender(caller: Caller) -> str | None:
    only = None if caller.may("ingest:fleet") else caller.nodes.only
    return None if only is None else caller.names.canonical(only)


def is_too_old(caller: Caller, moment: datetime) -> bool:
    """Whether a moment lies before what the caller may report."""
    return caller.oldest is not None and moment < caller.oldest


def check_age(caller: Caller, moment: datetime) -> None:
    """Refuse what is too old for the caller.

    Raises:
        RecordError: it is.
    """
    if caller.oldest is not None and is_too_old(caller, moment):
        text = (
            f"'time' is before {caller.oldest:%Y-%m-%d}: set the node's clock; an archive takes the scope ingest:fleet"
        )
        raise RecordError(text)


def own_events(caller: Caller, events: Iterable[Event], rejected: list[Rejected]) -> list[Event]:
    """The events that a caller may report, each counted for its node; the others are rejected, by their lines."""
    found: list[Event] = []
    for event in events:
        try:
            found.append(own_event(caller, event))
        except RecordError as error:
            rejected.append(rejection(event.line or 0, error))
    caller.count(event.node for event in found)
    return found


def own_node(caller: Caller, node: str) -> str:
    """The name that the inventory has for a node that the caller speaks for.

    Raises:
        RecordError: it is no node's name, or the caller does not speak for the node.
    """
    name = caller.names.canonical(node)
    if not caller.speaks_for(name):
        text = f"token {caller.name!r} does not speak for node {name[:80]!r}, but for {caller.nodes.text[:80]!r}"
        raise ForeignRecordError(text, "node")
    return name

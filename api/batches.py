"""Batches of a queue, into the store: many messages, one transaction a kind, the same records as over HTTP.

    taken = take_batches(state, [Batch("events", b'[{"time": ...}]'), Batch("heartbeats", b"[...]")])

Nothing here is acknowledged: whoever calls does that once it has returned. Doing it twice is doing it once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from api.edge.auth import Caller
from api.edge.body import MOST_PARTS
from api.edge.problem import Problem
from api.edge.work_budget import WorkBudget, check_containers, working
from api.intake.entries import Rejected, count_rejected, events_of, records, sift
from api.intake.heartbeat_record import own_report, read_heartbeat
from api.intake.records import take_events, take_rollups
from api.routes.telemetry import own_rollup, read_rollup
from api.server.state import State
from parsers.text.packed import PackedError, unzstd
from store.events.append import MAX_AHEAD
from store.nodes.known_names import KnownNames
from store.nodes.sidecars import SidecarReport
from store.records.event import Event, RecordError
from store.records.hostlist import NodePattern
from store.records.telemetry import Rollup

KINDS = ("events", "telemetry", "heartbeats")
# Who may publish to a subject is what the queue decides: a node's user to the node's own, others to that of the fleet.
_FLEET = Caller("queue", frozenset(("ingest:fleet",)))


class NoBatchError(ValueError):
    """A message that holds no batch."""


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """One message: its kind, the JSON array of its records, and the node of its subject; None: the fleet's."""

    kind: str
    body: bytes
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that was left out: the number of its batch, the record, and why."""

    batch: int
    record: Any
    detail: str


@dataclass(slots=True)
class _Read:
    """What the batches hold."""

    events: list[Event] = field(default_factory=list)
    rollups: list[Rollup] = field(default_factory=list)
    reports: list[SidecarReport] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def unpack(data: bytes, encoding: str | None, limit: int) -> bytes:
    """The body of a message.

    Raises:
        NoBatchError: it is not packed as it says, or is over `limit` bytes.
    """
    if encoding not in (None, "", "identity", "zstd"):
        raise NoBatchError(f"Content-Encoding {encoding[:40]!r} is not taken")
    body = bytearray()
    try:
        for piece in unzstd([data], MOST_PARTS) if encoding == "zstd" else (data,):
            body += piece
            if len(body) > limit:
                raise NoBatchError(f"over {limit} bytes, unpacked")
    except PackedError as error:
        raise NoBatchError(f"no zstd: {error}") from error
    return bytes(body)


def check(batch: QueueBatch) -> None:
    """Refuse what is no batch at all.

    Raises:
        NoBatchError: a kind that is not known, or no JSON array.
    """
    if batch.kind not in KINDS:
        raise NoBatchError(f"no kind of batch: {batch.kind[:40]!r}")
    try:
        check_containers(batch.body)
        value = orjson.loads(batch.body)
    except Problem as problem:
        raise NoBatchError(str(problem.detail)) from problem
    except orjson.JSONDecodeError as error:
        raise NoBatchError(f"no JSON: {error}") from error
    if not isinstance(value, list):
        raise NoBatchError("a batch is a JSON array")


def take_batches(state: State, batches: Sequence[QueueBatch]) -> list[Refused]:
    """Store the records of batches that `check` let pass; what does not fit is returned, and leaves the rest alone.

    Raises:
        SQLAlchemyError: the database did not take them; some kinds may be stored, and are known the next time.
    """
    read = _Read()
    for number, batch in enumerate(batches):
        _read_batch(state, number, batch, read)
    if read.events:
        take_events(state, read.events, (), "nats")
    if read.rollups:
        take_rollups(state, read.rollups, ())
    state.heartbeats.put(read.reports)
    return read.refused


def _read_batch(state: State, number: int, batch: QueueBatch, read: _Read) -> None:
    now = state.clock()
    try:
        with working(WorkBudget(state.settings.limits.work_s)):
            rejected = _sort(batch, read, now, state.names.now)
    except Problem as problem:
        raise NoBatchError(str(problem.detail)) from problem
    count_rejected(state.metrics, "nats", rejected)
    if rejected:
        values = orjson.loads(batch.body)
        read.refused += [Refused(number, values[entry.line - 1], entry.detail) for entry in rejected]


def _caller_of(batch: QueueBatch, names: KnownNames) -> Caller:
    """Who may publish to a node's subject speaks for that node alone."""
    if batch.node is None:
        return _FLEET
    try:
        own = NodePattern.exactly([names.canonical(batch.node)])
    except RecordError as error:
        raise NoBatchError(f"the subject: {error}") from error
    return Caller(f"queue:{batch.node[:80]}", frozenset(("ingest",)), own)


def _sort(batch: QueueBatch, read: _Read, now: datetime, names: KnownNames) -> Sequence[Rejected]:
    caller = replace(_caller_of(batch, names), names=names).seen_at(min(now, datetime.now(UTC)))
    if batch.kind == "events":
        events, rejected = events_of(batch.body, caller)
        read.events += events
    elif batch.kind == "telemetry":
        latest = max(now, datetime.now(UTC)) + MAX_AHEAD
        rollups, rejected = sift(records(batch.body), lambda value: own_rollup(caller, read_rollup(value, latest)))
        read.rollups += rollups
    else:
        reports, rejected = sift(records(batch.body), lambda value: own_report(caller, read_heartbeat(value, now)))
        read.reports += reports
    return rejected

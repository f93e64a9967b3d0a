"""Appends: every write that sources make, idempotent, in the caller's transaction.

with writing(engine).begin() as connection:
    taken = append_events(connection, events, received=now)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.event import Event, RecordError, format_time, with_id
from store.job import Job, job_from_event
from store.node import Node
from store.outage import Outage, outage_from_event
from store.telemetry import ROLLUP_S, Rollup
from store.telemetry_merge import merge_rollups

# SQLite's limit is 32,766 bound values a statement, PostgreSQL's 65,535.
_MAX_VALUES = 30_000
# Clocks drift and zones are mistaken for each other; a day covers both.
MAX_AHEAD = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append took: `new` was not there before (as stored: each has a time), `known` was; `nodes` had news."""

    new: tuple[Event, ...]
    known: int

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that the new events speak of."""
        return frozenset(event.node for event in self.new if event.node)


def append_events(connection: sa.Connection, events: Iterable[Event], received: datetime) -> Appended:
    """Append events; one whose id is there already changes nothing.

    Events of kind `outage` and `job` also update those tables.
    An event without a time happened, for all we know, when it was received; so did one that is dated in the future
    (its host's clock is wrong, or a log says 2999): what it said is kept as the attribute `time_claimed`.
    """
    latest = max(received, datetime.now(UTC)) + MAX_AHEAD
    unique = {event.id: _dated(event, received, latest) for event in map(with_id, events)}
    fresh = _insert_new(connection, list(unique.values()), received)
    append_outages(connection, _decoded(fresh, "outage", outage_from_event))
    append_jobs(connection, _decoded(fresh, "job", job_from_event))
    _note_seen(connection, fresh, received)
    return Appended(new=tuple(fresh), known=len(unique) - len(fresh))


def _dated(event: Event, received: datetime, latest: datetime) -> Event:
    if event.time is None:
        return replace(event, time=received)
    if event.time <= latest:
        return event
    attributes = {**event.attributes, "time_claimed": format_time(event.time)}
    return replace(event, time=received, attributes=attributes)


def _insert_new(connection: sa.Connection, events: Sequence[Event], received: datetime) -> list[Event]:
    """Insert what is not there; returns what was new. Two writers at once cannot make a duplicate."""
    known: set[str] = set()
    column = schema.events.c.id
    for part in _parts([event.id for event in events]):
        known.update(connection.scalars(sa.select(column).where(column.in_(part))))
    fresh = [event for event in events if event.id not in known]
    if fresh:
        statement = _insert(connection, schema.events).on_conflict_do_nothing(index_elements=["id", "time"])
        connection.execute(statement, [_event_row(event, received) for event in fresh])
    return fresh


def _event_row(event: Event, received: datetime) -> dict[str, Any]:
    return {
        "id": event.id,
        "time": event.time or received,
        "received": received,
        "node": event.node,
        "run": event.run(),
        "source": event.source,
        "kind": event.kind,
        "code": event.code,
        "severity": event.severity,
        "cause": event.cause,
        "action": event.action,
        "device": asdict(event.device),
        "message": event.message,
        "attributes": dict(event.attributes),
        "file": event.file,
        "line": event.line,
    }


def _decoded(events: Iterable[Event], kind: str, decode: Any) -> list[Any]:
    """The typed records that events of a kind carry; one that carries none stays a plain event."""
    found = []
    for event in events:
        if event.kind == kind:
            try:
                found.append(decode(event))
            except RecordError:
                continue
    return found


def _note_seen(connection: sa.Connection, events: Sequence[Event], received: datetime) -> None:
    """Every node that is heard of is known, with the time of its newest event."""
    newest: dict[str, datetime] = {}
    for event in events:
        if event.node:
            newest[event.node] = max(event.time or received, newest.get(event.node, event.time or received))
    upsert_last_seen(connection, newest)


def upsert_last_seen(connection: sa.Connection, newest: Mapping[str, datetime]) -> None:
    """Note nodes as known, and when they were last heard of."""
    table = schema.nodes
    if not newest:
        return
    statement = _insert(connection, table)
    newer = sa.case(
        (table.c.last_seen.is_(None), statement.excluded.last_seen),
        (statement.excluded.last_seen > table.c.last_seen, statement.excluded.last_seen),
        else_=table.c.last_seen,
    )
    connection.execute(
        statement.on_conflict_do_update(index_elements=["node"], set_={"last_seen": newer}),
        [{"node": node, "last_seen": moment} for node, moment in sorted(newest.items())],
    )


def append_outages(connection: sa.Connection, outages: Iterable[Outage]) -> None:
    """Append outages; a later record of the same start closes or corrects the earlier one."""
    upsert(connection, schema.outages, [asdict(outage) for outage in outages])


def append_jobs(connection: sa.Connection, jobs: Iterable[Job]) -> None:
    """Append attempts; a later record of the same attempt replaces the earlier one."""
    rows = []
    for job in jobs:
        began = job.submit or job.start  # the submit is there before the start, and a requeue sets it anew
        rows.append({**asdict(job), "attempt": format_time(began) if began else ""})
    upsert(connection, schema.jobs, rows)


def append_rollups(connection: sa.Connection, rollups: Sequence[Rollup], received: datetime | None = None) -> None:
    """Append telemetry roll-ups; what a later record of the same node and hour tells replaces what was there of it.

    Its node was heard of until the hour's end, or until it was `received` where the hour is not over;
    where nobody says when that was, at the hour's start at the least.
    """
    merge_rollups(connection, rollups)
    newest: dict[str, datetime] = {}
    for rollup in rollups:
        heard = max(rollup.time, min(rollup.time + timedelta(seconds=ROLLUP_S), received or rollup.time))
        newest[rollup.node] = max(heard, newest.get(rollup.node, heard))
    upsert_last_seen(connection, newest)


def append_nodes(connection: sa.Connection, nodes: Iterable[Node]) -> None:
    """Append nodes; what is known of one already is replaced, `last_seen` kept."""
    upsert(connection, schema.nodes, [asdict(node) for node in nodes])


def append_links(connection: sa.Connection, links: Iterable[Mapping[str, Any]]) -> None:
    """Append cables (`switch port peer peer_port peer_type`); the newest cabling of a port holds."""
    upsert(connection, schema.links, [dict(link) for link in links])


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows; one whose primary key is there already is replaced. Of two with the same key the last holds."""
    keys = [column.name for column in table.primary_key]
    unique = {tuple(row[key] for key in keys): row for row in rows}
    if not unique:
        return
    statement = _insert(connection, table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), list(unique.values()))


def _insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | Any:
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def _parts(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[start : start + _MAX_VALUES] for start in range(0, len(values), _MAX_VALUES))

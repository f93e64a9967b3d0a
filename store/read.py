"""Reads: windows of the tables as records. Times are half-open: since <= time < until."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.event import Device, Event
from store.incident import Incident
from store.job import Job
from store.look_back import backwards
from store.node import Node
from store.outage import Outage

_FETCH = 5_000
_INCIDENT = tuple(field.name for field in fields(Incident))


@dataclass(frozen=True, slots=True)
class Window:
    """Which events to read; None leaves a side open. `after` is the (time, id) of the last one read."""

    since: datetime | None = None
    until: datetime | None = None
    node: str | None = None
    kind: str | None = None
    run: str | None = None
    after: tuple[datetime, str] | None = None


def read_events(
    connection: sa.Connection,
    window: Window,
    limit: int | None = None,
    kinds: Sequence[str] | None = None,
    excluding: Sequence[str] = (),
) -> Iterator[Event]:
    """Events of a window in the order (time, id), oldest first.

    Args:
        kinds: only these kinds.
        excluding: none of these sources (`training`, `sacct` ... are many and no faults).
    """
    table = schema.events
    query = sa.select(table).order_by(table.c.time, table.c.id)
    for column, value in (
        (table.c.node, window.node),
        (table.c.kind, window.kind),
        (table.c.run, window.run),
    ):
        if value is not None:
            query = query.where(column == value)
    if window.since is not None:
        query = query.where(table.c.time >= window.since)
    if window.until is not None:
        query = query.where(table.c.time < window.until)
    if window.after is not None:
        query = query.where(sa.tuple_(table.c.time, table.c.id) > sa.tuple_(*map(_literal, window.after)))
    if kinds is not None:
        query = query.where(table.c.kind.in_(kinds))
    if excluding:
        query = query.where(table.c.source.not_in(excluding))
    if limit is not None:
        query = query.limit(limit)
    # A reader that stops halfway leaves no cursor open on the server.
    with connection.execute(query.execution_options(yield_per=_FETCH)) as result:
        for row in result:
            yield event_of(row)


def _literal(value: Any) -> sa.ColumnElement[Any]:
    return sa.literal(value, schema.UtcTime() if isinstance(value, datetime) else sa.Text())


def event_of(row: Any) -> Event:
    """The event of a row of `events`."""
    return Event(
        time=row.time,
        node=row.node,
        source=row.source,
        kind=row.kind,
        code=row.code,
        severity=row.severity,
        cause=row.cause,
        action=row.action,
        device=Device(**row.device),
        message=row.message,
        attributes=row.attributes,
        line=row.line,
        file=row.file,
        id=row.id,
    )


def read_nodes(connection: sa.Connection) -> list[Node]:
    """Every known node, by name."""
    names = [name for name in schema.nodes.columns.keys() if name != "last_seen"]  # noqa: SIM118  # columns is no dict
    query = sa.select(*(schema.nodes.c[name] for name in names)).order_by(schema.nodes.c.node)
    return [Node(**row) for row in connection.execute(query).mappings()]


def read_outages(
    connection: sa.Connection, until: datetime | None = None, node: str | None = None, since: datetime | None = None
) -> list[Outage]:
    """Outages that began at or after `since` and before `until`, in order of their start.

    The end of one that ended after `until` is hidden: nobody knew it then.
    """
    table = schema.outages
    query = sa.select(table).order_by(table.c.start, table.c.node)
    if until is not None:
        query = query.where(table.c.start < until)
    if since is not None:
        query = query.where(table.c.start >= since)
    if node is not None:
        query = query.where(table.c.node == node)
    found = []
    for row in connection.execute(query).mappings():
        outage = dict(row)
        if until is not None and outage["end"] is not None and outage["end"] >= until:
            outage["end"] = None
        found.append(Outage(**outage))
    return found


def read_jobs(connection: sa.Connection, run: str | None = None) -> list[Job]:
    """Attempts in order of their start (or submit); all of them, or one run's."""
    table = schema.jobs
    query = sa.select(*(column for column in table.columns if column.name != "attempt"))
    if run is not None:
        query = query.where(table.c.run == run)
    query = query.order_by(sa.func.coalesce(table.c.start, table.c.submit), table.c.job_id)
    return [Job(**row) for row in connection.execute(query).mappings()]


def read_incidents(
    connection: sa.Connection, since: datetime, until: datetime, node: str | None = None
) -> list[Incident]:
    """Incidents that showed within a window, by their start."""
    table = schema.incidents
    query = sa.select(table).where(table.c.end >= since, table.c.start < until).order_by(table.c.start, table.c.id)
    if node is not None:
        query = query.where(table.c.node == node)
    return [incident_of(row) for row in connection.execute(query).mappings()]


def incident_of(row: Any) -> Incident:
    """The incident of a row of `incidents`."""
    return Incident(**{**{name: row[name] for name in _INCIDENT}, "device": Device(**row["device"])})


def newest_time(connection: sa.Connection) -> datetime | None:
    """The time of the newest event or roll-up; None in an empty store."""
    newest = [_newest(connection, table.c.time) for table in (schema.events, schema.telemetry)]
    known = [moment for moment in newest if moment is not None]
    return max(known, default=None)


def _newest(connection: sa.Connection, column: sa.ColumnElement[datetime]) -> datetime | None:
    query = sa.select(sa.func.max(column, type_=schema.UtcTime()))
    for since, until in backwards(datetime.now(UTC)):
        here = [*([] if since is None else [column >= since]), *([] if until is None else [column < until])]
        moment: datetime | None = connection.scalar(query.where(*here))
        if moment is not None:
            return moment
    return None

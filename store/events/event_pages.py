"""Windows of events and incidents as records, and pages of them in the order (time, id) as objects of an answer.

Times are half-open: since <= time < until.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from store.records.event import Device, Event, Severity
from store.records.incident import Incident, incident_of
from store.tables import schema
from store.tables.pages import (
    TimeStretch,
    backwards,
    document_of,
    forwards,
    ordered_page,
    ordered_query,
    rows_of,
)
from store.tables.schema import LONG, LONG_INCIDENT

_FETCH = 5_000


@dataclass(frozen=True, slots=True)
class EventWindow:
    """Which events to read; None leaves a side open. `after` is the (time, id) of the last one read."""

    since: datetime | None = None
    until: datetime | None = None
    node: str | None = None
    kind: str | None = None
    run: str | None = None
    after: tuple[datetime, str] | None = None


def read_events(
    connection: sa.Connection,
    window: EventWindow,
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


def has_events(connection: sa.Connection, kinds: Sequence[str], since: datetime, least: int) -> bool:
    """Whether there are at least so many events of some kinds since a moment; no more than these are looked at."""
    table = schema.events
    found = sa.select(table.c.time).where(table.c.kind.in_(kinds), table.c.time >= since).limit(least).subquery()
    return (connection.scalar(sa.select(sa.func.count()).select_from(found)) or 0) >= least


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


def read_incidents(
    connection: sa.Connection, since: datetime, until: datetime, node: str | None = None
) -> list[Incident]:
    """Incidents that showed within a window, by their start."""
    table = schema.incidents
    query = sa.select(table).where(table.c.end >= since, table.c.start < until).order_by(table.c.start, table.c.id)
    if node is not None:
        query = query.where(table.c.node == node)
    return [incident_of(row) for row in connection.execute(query).mappings()]


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


# How the events of a time were judged, counted.

_EVENTS = schema.events


def judgements_since(connection: sa.Connection, since: datetime) -> list[tuple[Event, int]]:
    """Each kind, code and judgement of the events since a moment, as an event without time and place, and how many."""
    columns = (_EVENTS.c.kind, _EVENTS.c.code, _EVENTS.c.severity, _EVENTS.c.cause, _EVENTS.c.action)
    query = sa.select(*columns, sa.func.count()).where(_EVENTS.c.time >= since).group_by(*columns)
    return [
        (Event(None, None, "", kind, code, severity, cause, action), count)
        for kind, code, severity, cause, action, count in connection.execute(query)
    ]


# In the order of `foreshock parse`.
_EVENT = (
    *("line", "time", "node", "source", "kind", "code", "severity", "cause", "action"),
    *("device", "message", "attributes", "file", "id", "received"),
)
INCIDENT_COLUMNS = tuple(field.name for field in fields(Incident))


# No event is as old or as young: a query with both bounds is built once for all stretches.
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def event_page(
    connection: sa.Connection, window: EventWindow, limit: int, newest: bool = False, now: datetime | None = None
) -> list[dict[str, Any]]:
    """Events within a window, at most `limit`, oldest first.

    `newest` takes the last ones of the window instead of the first (then `after` means before).
    `now` is where the newest events of an open window are looked for first; any moment gives the same answer.
    """
    table = schema.events
    query = sa.select(*(table.c[name] for name in _EVENT))
    for column, value in ((table.c.node, window.node), (table.c.kind, window.kind), (table.c.run, window.run)):
        if value is not None:
            query = query.where(column == value)
    query = query.where(table.c.time >= sa.bindparam("since"), table.c.time < sa.bindparam("until"))
    page = ordered_query(connection, query, "time", window.after, newest)
    rows: list[dict[str, Any]] = []
    for since, until in _stretches(window, newest, now):
        bound = {"since": since or _FIRST, "until": until or _LAST, "most": limit - len(rows)}
        found = rows_of(connection, page, bound)
        rows = found + rows if newest else rows + found
        if len(rows) >= limit:
            break
    return rows


def _stretches(window: EventWindow, newest: bool, now: datetime | None) -> Iterator[TimeStretch]:
    """Where to look for a page, one stretch after the other: from its mark, or from where the window begins."""
    mark = None if window.after is None else window.after[0]
    near = mark or (window.until or now if newest else window.since)
    if near is None:
        return iter([(window.since, window.until)])
    return (backwards if newest else forwards)(near, window.since, window.until)


def incident_page(
    connection: sa.Connection, window: EventWindow, severity: str | None, limit: int, newest: bool = False
) -> list[dict[str, Any]]:
    """Incidents that showed within a window, at most `limit`, by their start, oldest first; with their `devices`."""
    table = schema.incidents
    query = sa.select(*(table.c[name] for name in INCIDENT_COLUMNS), table.c.heads)
    if window.until is not None:
        query = query.where(table.c.start < window.until)
    for column, value in ((table.c.node, window.node), (table.c.severity, severity)):
        if value is not None:
            query = query.where(column == value)
    if window.since is None:
        return with_devices(ordered_page(connection, query, "start", window.after, (limit, newest)))
    rows: list[dict[str, Any]] = []
    parts = (_lasting(query, connection.dialect.name, window.since), query.where(table.c.start >= window.since))
    for part in parts[::-1] if newest else parts:
        found = ordered_page(connection, part, "start", window.after, (limit - len(rows), newest))
        rows = found + rows if newest else rows + found
        if len(rows) >= limit:
            break
    return with_devices(rows)


class _HeadDevice(msgspec.Struct):
    """What is read of an incident's heads: what happened to which device, how bad it was."""

    severity: Severity
    device: Device
    follows: bool = False


_HEADS = msgspec.json.Decoder(list[_HeadDevice])


def with_devices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of incidents with `heads` made `devices`: every device that is as bad as the one that names it, that first.

    A device is named as that one is, by its address, UUID or index: under another name it might be the same. A GPU that
    another line of the incident calls by address and index has both.
    """
    for row in rows:
        heads = row.pop("heads")
        row["devices"] = [row["device"]]
        if heads:
            read, own = _HEADS.decode(heads), document_of(row, "device")
            known = [one.device for one in read if one.device.type == "gpu" and one.device.index is not None]
            numbers = {device.pci: device.index for device in known}
            found = [own, *_others(read, own, row["severity"])]
            row["devices"] = [_numbered(device, numbers) for device in found]
            row["device"] = row["devices"][0]
    return rows


def _numbered(device: dict[str, Any], numbers: Mapping[str | None, int | None]) -> dict[str, Any]:
    """A GPU with the index that its PCI address has."""
    if device.get("type") != "gpu" or device.get("pci") is None or device.get("index") is not None:
        return device
    return {**device, "index": numbers.get(device["pci"])}


_NAMED_BY = ("pci", "uuid", "index")


def _others(heads: Sequence[_HeadDevice], own: Mapping[str, Any], severity: str) -> list[dict[str, Any]]:
    by = next((name for name in _NAMED_BY if own[name] is not None), "")
    found: dict[Any, dict[str, Any]] = {}
    for head in heads:
        device = asdict(head.device)
        if head.severity == severity and not head.follows and device["type"] == own["type"]:
            found.setdefault(device.get(by), device)
    return [device for name, device in found.items() if name not in (None, own.get(by))]


def _lasting(query: sa.Select[Any], dialect: str, since: datetime) -> sa.Select[Any]:
    """Incidents that began before a moment and still showed then or later.

    Nearly all are short: those have ended soon after. The long ones, which are few, have an index of their own.
    Two queries, for PostgreSQL walks through all that ended later where one asks for this or that.
    """
    table = schema.incidents
    begun, soon = query.where(table.c.start < since), since + LONG_INCIDENT
    short = begun.where(table.c.end >= since, table.c.end <= soon)
    both = sa.union_all(short, begun.where(table.c.end > soon, LONG[dialect])).subquery()
    # The offset keeps PostgreSQL from walking through all that began before, in the order of the page.
    return sa.select(sa.select(both).offset(0).subquery())

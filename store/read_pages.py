"""Pages of the tables in the order (time, id), for readers that come back for the next one.

Their rows are objects for an answer (`store/read_json.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.incident import Incident
from store.look_back import Stretch, backwards, onwards
from store.partial import LONG, LONG_INCIDENT
from store.read import Window
from store.read_json import read_shown

Mark = tuple[datetime, str]
# In the order of `foreshock parse`.
_EVENT = (
    *("line", "time", "node", "source", "kind", "code", "severity", "cause", "action"),
    *("device", "message", "attributes", "file", "id", "received"),
)
_INCIDENT = tuple(field.name for field in fields(Incident))


def event_page(
    connection: sa.Connection, window: Window, limit: int, newest: bool = False, now: datetime | None = None
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
    rows: list[dict[str, Any]] = []
    for since, until in _stretches(window, newest, now):
        part = between(query, table.c.time, since, until)
        found = _ordered_page(connection, part, "time", window.after, (limit - len(rows), newest))
        rows = found + rows if newest else rows + found
        if len(rows) >= limit:
            break
    return rows


def _stretches(window: Window, newest: bool, now: datetime | None) -> Iterator[Stretch]:
    """Where to look for a page, one stretch after the other: from its mark, or from where the window begins."""
    mark = None if window.after is None else window.after[0]
    near = mark or (window.until or now if newest else window.since)
    if near is None:
        return iter([(window.since, window.until)])
    return (backwards if newest else onwards)(near, window.since, window.until)


def incident_page(
    connection: sa.Connection, window: Window, severity: str | None, limit: int, newest: bool = False
) -> list[dict[str, Any]]:
    """Incidents that showed within a window, at most `limit`, by their start, oldest first."""
    table = schema.incidents
    query = sa.select(*(table.c[name] for name in _INCIDENT))
    if window.until is not None:
        query = query.where(table.c.start < window.until)
    for column, value in ((table.c.node, window.node), (table.c.severity, severity)):
        if value is not None:
            query = query.where(column == value)
    if window.since is None:
        return _ordered_page(connection, query, "start", window.after, (limit, newest))
    rows: list[dict[str, Any]] = []
    parts = (_lasting(query, connection.dialect.name, window.since), query.where(table.c.start >= window.since))
    for part in parts[::-1] if newest else parts:
        found = _ordered_page(connection, part, "start", window.after, (limit - len(rows), newest))
        rows = found + rows if newest else rows + found
        if len(rows) >= limit:
            break
    return rows


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


def hint_page(
    connection: sa.Connection, states: Sequence[str] | None, node: str | None, after: Mark | None, limit: int
) -> list[dict[str, Any]]:
    """Hints, the last `limit` that were made (before the mark), oldest first."""
    table = schema.hints
    query = sa.select(table)
    if states is not None:
        query = query.where(table.c.state.in_(states))
    if node is not None:
        query = query.where(table.c.node == node)
    return _ordered_page(connection, query, "created", after, (limit, True))


def score_page(
    connection: sa.Connection, horizon_h: int, moment: datetime, nodes: tuple[str | None, str], limit: int
) -> list[dict[str, Any]]:
    """The scores of one scoring by node; `nodes` is the only node asked for, and the one to continue after."""
    table = schema.scores
    only, after = nodes
    query = sa.select(table).where(table.c.horizon_h == horizon_h, table.c.time == moment, table.c.node > after)
    if only is not None:
        query = query.where(table.c.node == only)
    page = query.order_by(table.c.node).limit(limit).subquery()
    return read_shown(connection, page, page.c.node)


def between(
    query: sa.Select[Any], column: sa.ColumnElement[Any], since: datetime | None, until: datetime | None
) -> sa.Select[Any]:
    """The query for since <= column < until; None leaves a side open."""
    if since is not None:
        query = query.where(column >= since)
    if until is not None:
        query = query.where(column < until)
    return query


def _ordered_page(
    connection: sa.Connection, query: sa.Select[Any], by: str, after: Mark | None, size: tuple[int, bool]
) -> list[dict[str, Any]]:
    """What a query finds in the order of (the time `by`, id) beyond a mark; `size`: the limit, whether the newest come.

    Rows are oldest first either way.
    """
    limit, newest = size
    time, ident = query.selected_columns[by], query.selected_columns["id"]
    if after is not None:
        mark = sa.tuple_(sa.literal(after[0], schema.UtcTime()), sa.literal(after[1], sa.Text()))
        here = sa.tuple_(time, ident)
        # The first alone tells a divided table which days need no look.
        query = query.where(time <= after[0] if newest else time >= after[0], here < mark if newest else here > mark)
    order = (time.desc(), ident.desc()) if newest else (time, ident)
    page = query.order_by(*order).limit(limit).subquery()
    return read_shown(connection, page, page.c[by], page.c["id"])

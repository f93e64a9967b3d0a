"""Pages of the tables in the order (time, id), for readers that come back for the next one."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.look_back import Stretch, backwards, onwards
from store.partial import LONG, LONG_INCIDENT
from store.read import Window

Mark = tuple[datetime, str]


def event_page(
    connection: sa.Connection, window: Window, limit: int, newest: bool = False, now: datetime | None = None
) -> list[Any]:
    """Rows of `events` within a window, at most `limit`, oldest first.

    `newest` takes the last ones of the window instead of the first (then `after` means before).
    `now` is where the newest events of an open window are looked for first; any moment gives the same answer.
    """
    table = schema.events
    query = sa.select(table)
    for column, value in ((table.c.node, window.node), (table.c.kind, window.kind), (table.c.run, window.run)):
        if value is not None:
            query = query.where(column == value)
    rows: list[Any] = []
    for since, until in _stretches(window, newest, now):
        part = between(query, table.c.time, since, until)
        key, size = (table.c.time, table.c.id), (limit - len(rows), newest)
        found = ordered_page(connection, part, key, window.after, size)
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
) -> list[Any]:
    """Rows of `incidents` that showed within a window, at most `limit`, by their start, oldest first."""
    table = schema.incidents
    query = sa.select(table)
    if window.until is not None:
        query = query.where(table.c.start < window.until)
    for column, value in ((table.c.node, window.node), (table.c.severity, severity)):
        if value is not None:
            query = query.where(column == value)
    key = (table.c.start, table.c.id)
    if window.since is None:
        return ordered_page(connection, query, key, window.after, (limit, newest))
    rows: list[Any] = []
    lasting = _lasting(query, connection.dialect.name, window.since)
    parts = ((sa.select(lasting), (lasting.c.start, lasting.c.id)), (query.where(table.c.start >= window.since), key))
    for part, order in parts[::-1] if newest else parts:
        found = ordered_page(connection, part, order, window.after, (limit - len(rows), newest))
        rows = found + rows if newest else rows + found
        if len(rows) >= limit:
            break
    return rows


def _lasting(query: sa.Select[Any], dialect: str, since: datetime) -> sa.Subquery:
    """Incidents that began before a moment and still showed then or later.

    Nearly all are short: those have ended soon after. The long ones, which are few, have an index of their own.
    The offset keeps PostgreSQL from walking through all that began before, in the order of the page.
    """
    table = schema.incidents
    short = (table.c.end >= since) & (table.c.end <= since + LONG_INCIDENT)
    lasted = (table.c.end >= since) & LONG[dialect]
    return query.where(table.c.start < since, short | lasted).offset(0).subquery()


def hint_page(
    connection: sa.Connection, states: Sequence[str] | None, node: str | None, after: Mark | None, limit: int
) -> list[Any]:
    """Rows of `hints`, the last `limit` that were made (before the mark), oldest first."""
    table = schema.hints
    query = sa.select(table)
    if states is not None:
        query = query.where(table.c.state.in_(states))
    if node is not None:
        query = query.where(table.c.node == node)
    return ordered_page(connection, query, (table.c.created, table.c.id), after, (limit, True))


def score_page(
    connection: sa.Connection, horizon_h: int, moment: datetime, nodes: tuple[str | None, str], limit: int
) -> list[dict[str, Any]]:
    """The scores of one scoring by node; `nodes` is the only node asked for, and the one to continue after."""
    table = schema.scores
    only, after = nodes
    query = sa.select(table).where(table.c.horizon_h == horizon_h, table.c.time == moment, table.c.node > after)
    if only is not None:
        query = query.where(table.c.node == only)
    return [dict(row) for row in connection.execute(query.order_by(table.c.node).limit(limit)).mappings()]


def between(
    query: sa.Select[Any], column: sa.ColumnElement[Any], since: datetime | None, until: datetime | None
) -> sa.Select[Any]:
    """The query for since <= column < until; None leaves a side open."""
    if since is not None:
        query = query.where(column >= since)
    if until is not None:
        query = query.where(column < until)
    return query


def ordered_page(
    connection: sa.Connection,
    query: sa.Select[Any],
    key: tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]],
    after: Mark | None,
    size: tuple[int, bool],
) -> list[Any]:
    """Rows of a query in the order of `key` beyond a mark; `size` is the limit and whether the newest come.

    Rows are oldest first either way.
    """
    limit, newest = size
    time, ident = key
    if after is not None:
        mark = sa.tuple_(sa.literal(after[0], schema.UtcTime()), sa.literal(after[1], sa.Text()))
        here = sa.tuple_(time, ident)
        # The first alone tells a divided table which days need no look.
        query = query.where(time <= after[0] if newest else time >= after[0], here < mark if newest else here > mark)
    order = (time.desc(), ident.desc()) if newest else (time, ident)
    rows = list(connection.execute(query.order_by(*order).limit(limit)))
    return rows[::-1] if newest else rows

"""Pages of the tables in the order (time, id), for readers that come back for the next one."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.read import Window

Mark = tuple[datetime, str]


def event_page(connection: sa.Connection, window: Window, limit: int, newest: bool = False) -> list[Any]:
    """Rows of `events` within a window, at most `limit`, oldest first.

    `newest` takes the last ones of the window instead of the first (then `after` means before).
    """
    table = schema.events
    query = sa.select(table)
    for column, value in ((table.c.node, window.node), (table.c.kind, window.kind), (table.c.run, window.run)):
        if value is not None:
            query = query.where(column == value)
    query = between(query, table.c.time, window.since, window.until)
    return ordered_page(connection, query, (table.c.time, table.c.id), window.after, (limit, newest))


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
        query = query.where(here < mark if newest else here > mark)
    order = (time.desc(), ident.desc()) if newest else (time, ident)
    rows = list(connection.execute(query.order_by(*order).limit(limit)))
    return rows[::-1] if newest else rows

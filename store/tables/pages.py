"""Rows on their way into an answer: PostgreSQL writes times and documents as text, and Python passes them on unread.

    rows = connection.execute(sa.select(*shown(connection, hint_tables.hints.c)))
    [dict(zip(rows.keys(), row, strict=True)) for row in rows.all()]     # ready for orjson

Reading each time and document into an object and writing it again is most of the cost of a page of a thousand.
SQLite keeps times as numbers and takes any text for a document: there they are read as ever.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from store.records.event import Device, parse_time
from store.tables import schema

# Reading the newest (or the oldest) of a table of days, a stretch of time after the other.
#
# A query without bounds plans and opens every day that is kept, hundreds of them. Most of what is asked for lies near
# the present: it is looked for in the nearest day first, then in the week, in the month, and at last in all the rest.
# The stretches do not overlap, so what is found is what one query over all of them would find. Each is short: a query
# locks every day that it opens, with its indexes, until its transaction ends, and the server has room for so many
# locks.

STEPS = tuple(timedelta(days=days) for days in (1, 7, 30, 60, 120, 180, 240, 300, 370))
TimeStretch = tuple[datetime | None, datetime | None]


def backwards(near: datetime, since: datetime | None = None, until: datetime | None = None) -> Iterator[TimeStretch]:
    """Stretches since <= time < until from the newest to the oldest; `near` is where what is asked for may lie.

    The first reaches from a day before `near` to the end, the last from the beginning; None is an open side.
    """
    end = until
    for step in STEPS:
        begin = _moved(near, -step)
        if begin is None or (since is not None and begin <= since):
            break
        if end is None or begin < end:
            yield begin, end
            end = begin
    yield since, end


def forwards(near: datetime, since: datetime | None = None, until: datetime | None = None) -> Iterator[TimeStretch]:
    """Stretches since <= time < until from the oldest to the newest; the first ends a day after `near`."""
    begin = since
    for step in STEPS:
        end = _moved(near, step)
        if end is None or (until is not None and end >= until):
            break
        if begin is None or begin < end:
            yield begin, end
            begin = end
    yield begin, until


def _moved(moment: datetime, by: timedelta) -> datetime | None:
    """The moment moved; None where the calendar ends."""
    try:
        return moment + by
    except OverflowError:
        return None


def between(
    query: sa.Select[Any], column: sa.ColumnElement[Any], since: datetime | None, until: datetime | None
) -> sa.Select[Any]:
    """The query for since <= column < until; None leaves a side open."""
    if since is not None:
        query = query.where(column >= since)
    if until is not None:
        query = query.where(column < until)
    return query


# As `store.records.event.format_time` writes it.
_TIME_FORMAT = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'


class JsonDocument(sa.types.TypeDecorator[orjson.Fragment]):
    """A JSON document as orjson takes it up without reading it."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> orjson.Fragment | None:  # noqa: ARG002
        """The text, marked as JSON."""
        return None if value is None else orjson.Fragment(value)


class DeviceDocument(JsonDocument):
    """A device as an answer shows it: all its fields, whether or not the row names them."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> orjson.Fragment | None:  # noqa: ARG002
        """The text with the fields that it lacks."""
        return None if value is None else orjson.Fragment(_whole_text(value))


_DEVICE = tuple(field.name for field in fields(Device))


def whole_device(device: Any) -> Any:
    """A device of a row, whose unknown fields are left out there, with all its fields."""
    return {name: device.get(name) for name in _DEVICE} if isinstance(device, dict) and device else device


@lru_cache(4096)
def _whole_text(text: str) -> str:
    whole = all(f'"{name}":' in text for name in _DEVICE)
    return text if whole else orjson.dumps(whole_device(orjson.loads(text))).decode()


def answer_columns(connection: sa.Connection, columns: Iterable[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
    """Columns as an answer shows them, each under its own name."""
    return [_answer_column(column) for column in columns] if connection.dialect.name == "postgresql" else list(columns)


def _answer_column(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    if isinstance(column.type, schema.UtcTime):
        text = sa.func.to_char(sa.func.timezone("UTC", column), _TIME_FORMAT, type_=sa.Text())
        return text.label(column.key)
    if isinstance(column.type, sa.JSON):
        return sa.cast(column, DeviceDocument() if column.key == "device" else JsonDocument()).label(column.key)
    return column


def answer_rows(connection: sa.Connection, page: sa.FromClause, *order: sa.ColumnElement[Any]) -> list[dict[str, Any]]:
    """What a page's query finds, as objects of an answer, in the order of some of its columns.

    The page is cut before its times are written: a sort of many rows shall not write those of all of them.
    """
    return rows_of(connection, sa.select(*answer_columns(connection, page.c)).order_by(*order))


def rows_of(
    connection: sa.Connection, query: sa.Select[Any], bound: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """What a query of `answer_columns` finds, as objects of an answer; `bound`: the values that it still lacks."""
    result = connection.execute(query, bound)
    names = tuple(result.keys())
    rows = [dict(zip(names, row, strict=True)) for row in result.all()]
    if "device" in names and connection.dialect.name != "postgresql":
        for row in rows:
            row["device"] = whole_device(row["device"])
    return rows


def document_of(row: Mapping[str, Any], name: str) -> Any:
    """A JSON document of an object, whichever way it was read."""
    value = row[name]
    return orjson.loads(orjson.dumps(value)) if isinstance(value, orjson.Fragment) else value


def moment_of(row: Mapping[str, Any], name: str) -> datetime:
    """A time of an object, whichever way it was read."""
    value = row[name]
    return value if isinstance(value, datetime) else parse_time(value)


PageMark = tuple[datetime, str]


def ordered_page(
    connection: sa.Connection, query: sa.Select[Any], by: str, after: PageMark | None, size: tuple[int, bool]
) -> list[dict[str, Any]]:
    """What a query finds in the order of (the time `by`, id) beyond a mark; `size`: the limit, whether the newest come.

    Rows are oldest first either way.
    """
    limit, newest = size
    return rows_of(connection, ordered_query(connection, query, by, after, newest), {"most": limit})


def ordered_query(
    connection: sa.Connection, query: sa.Select[Any], by: str, after: PageMark | None, newest: bool
) -> sa.Select[Any]:
    """The query of such a page, whose limit is bound as `most`: who asks for several in a row builds it once."""
    time, ident = query.selected_columns[by], query.selected_columns["id"]
    if after is not None:
        mark = sa.tuple_(sa.literal(after[0], schema.UtcTime()), sa.literal(after[1], sa.Text()))
        here = sa.tuple_(time, ident)
        # The first alone tells a divided table which days need no look.
        query = query.where(time <= after[0] if newest else time >= after[0], here < mark if newest else here > mark)
    order = (time.desc(), ident.desc()) if newest else (time, ident)
    page = query.order_by(*order).limit(sa.bindparam("most", type_=sa.Integer())).subquery()
    return sa.select(*answer_columns(connection, page.c)).order_by(page.c[by], page.c["id"])

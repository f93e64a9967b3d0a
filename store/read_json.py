"""Rows on their way into an answer: PostgreSQL writes times and documents as text, and Python passes them on unread.

    rows = connection.execute(sa.select(*shown(connection, schema.hints.c)))
    [dict(zip(rows.keys(), row, strict=True)) for row in rows.all()]     # ready for orjson

Reading each time and document into an object and writing it again is most of the cost of a page of a thousand.
SQLite keeps times as numbers and takes any text for a document: there they are read as ever.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from store import schema
from store.event import parse_time

# As `store.event.format_time` writes it.
_MOMENT = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'


class Document(sa.types.TypeDecorator[orjson.Fragment]):
    """A JSON document as orjson takes it up without reading it."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> orjson.Fragment | None:  # noqa: ARG002
        """The text, marked as JSON."""
        return None if value is None else orjson.Fragment(value)


def shown(connection: sa.Connection, columns: Iterable[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
    """Columns as an answer shows them, each under its own name."""
    return [_shown(column) for column in columns] if connection.dialect.name == "postgresql" else list(columns)


def _shown(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    if isinstance(column.type, schema.UtcTime):
        text = sa.func.to_char(sa.func.timezone("UTC", column), _MOMENT, type_=sa.Text())
        return text.label(column.key)
    if isinstance(column.type, sa.JSON):
        return sa.cast(column, Document()).label(column.key)
    return column


def read_shown(connection: sa.Connection, page: sa.FromClause, *order: sa.ColumnElement[Any]) -> list[dict[str, Any]]:
    """What a page's query finds, as objects of an answer, in the order of some of its columns.

    The page is cut before its times are written: a sort of many rows shall not write those of all of them.
    """
    result = connection.execute(sa.select(*shown(connection, page.c)).order_by(*order))
    names = tuple(result.keys())
    return [dict(zip(names, row, strict=True)) for row in result.all()]


def moment_of(row: Mapping[str, Any], name: str) -> datetime:
    """A time of an object, whichever way it was read."""
    value = row[name]
    return value if isinstance(value, datetime) else parse_time(value)

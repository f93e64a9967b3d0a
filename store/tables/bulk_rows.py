"""Rows in bulk, past SQLAlchemy's work for each row: COPY on PostgreSQL, executemany on SQLite.

insert_rows(connection, schema.incidents, ("id", "start", "kinds"), [("x", datetime(...), '{"xid:79": 1}')])
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg
import sqlalchemy as sa
from psycopg.copy import LibpqWriter
from sqlalchemy.dialects import postgresql, sqlite

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Bytes of a COPY that wait in memory for the server before the writer waits, too: more than a scoring of 12,500 nodes.
_MOST_UNSENT_BYTES = 1 << 26
_US = timedelta(microseconds=1)


def insert_rows(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows of texts, numbers and aware moments; what goes into a JSON column is text already.

    Raises:
        IntegrityError: a row of that key is there.
    """
    if not rows:
        return
    names = ", ".join(f'"{column}"' for column in columns)
    if connection.dialect.name == "postgresql":
        copy_rows(connection, f"COPY {table.name} ({names}) FROM STDIN", rows)
        return
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608  # our own names
    connection.exec_driver_sql(statement, [tuple(map(bound_value, row)) for row in rows])


def copy_text(connection: sa.Connection, statement: str, blocks: Iterable[str]) -> None:
    """Run a COPY ... FROM STDIN of lines in its text format; the driver's errors come as SQLAlchemy's."""
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        with (
            driver.cursor() as cursor,
            cursor.copy(statement, writer=LibpqWriter(cursor, flush_threshold=_MOST_UNSENT_BYTES)) as copy,
        ):
            for block in blocks:
                copy.write(block)
    except psycopg.Error as error:
        raise sqlalchemy_error(statement, error) from error


def copy_rows(connection: sa.Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """Run a COPY ... FROM STDIN; the driver's errors come as SQLAlchemy's."""
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        raise sqlalchemy_error(statement, error) from error


def is_one_of(connection: sa.Connection, column: sa.ColumnElement[Any], texts: Iterable[str]) -> sa.ColumnElement[bool]:
    """Whether a column is one of many texts, which go as one parameter: the driver takes its time for each."""
    return column.in_(sa.select(as_rows(connection, texts).c.value))


def as_rows(connection: sa.Connection, texts: Iterable[str]) -> sa.TableValuedAlias:
    """Texts as rows with a `value`; they go as one parameter."""
    listed = sa.literal(orjson.dumps(sorted(texts)).decode(), sa.Text)
    if connection.dialect.name == "postgresql":
        return sa.func.json_array_elements_text(sa.cast(listed, sa.JSON)).table_valued("value")
    return sa.func.json_each(listed).table_valued("value")


def sqlalchemy_error(statement: str, error: psycopg.Error) -> sa.exc.DBAPIError:
    """The driver's error as SQLAlchemy raises it, which is what callers know."""
    return sa.exc.DBAPIError.instance(  # type: ignore[return-value]
        statement,
        None,
        error,
        psycopg.Error,
        dialect=postgresql.dialect(),  # type: ignore[no-untyped-call]
    )


def bound_value(value: Any) -> Any:
    """A value as SQLite holds it: a moment as microseconds since 1970."""
    return (value - _EPOCH) // _US if isinstance(value, datetime) else value


def upsert_last_seen(connection: sa.Connection, newest: Mapping[str, datetime]) -> None:
    """Note nodes as known, and when they were last heard of."""
    if not newest:
        return
    rows = sorted(newest.items())
    newer = "WHERE nodes.last_seen IS NULL OR nodes.last_seen < excluded.last_seen"
    upsert = f"ON CONFLICT (node) DO UPDATE SET last_seen = excluded.last_seen {newer}"
    if connection.dialect.name == "postgresql":
        listed = "SELECT row->>0, (row->>1)::timestamptz FROM json_array_elements(%s::json) AS listed (row)"
        statement = f"INSERT INTO nodes (node, last_seen) {listed} {upsert}"  # our own names
        connection.exec_driver_sql(statement, (orjson.dumps(rows).decode(),))
    else:
        statement = f"INSERT INTO nodes (node, last_seen) VALUES (?, ?) {upsert}"  # noqa: S608
        connection.exec_driver_sql(statement, [(node, bound_value(moment)) for node, moment in rows])


def upsert(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[dict[str, Any]],
    replaces: Callable[[Any], sa.ColumnElement[bool]] | None = None,
) -> None:
    """Insert rows; one whose primary key is there already is replaced. Of two with the same key the last holds.

    They go in by their keys, so that two writers cannot wait for each other.

    Args:
        replaces: whether a row (its columns by name) may replace the one that is there; None: it may.
    """
    keys = [column.name for column in table.primary_key]
    unique = {tuple(row[key] for key in keys): row for row in rows}
    if not unique:
        return
    statement = insert_into(connection, table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    where = None if replaces is None else replaces(statement.excluded)
    filled = statement.on_conflict_do_update(index_elements=keys, set_=changed, where=where)
    connection.execute(filled, [unique[key] for key in sorted(unique)])


def insert_into(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that may end in ON CONFLICT, which SQLAlchemy has apart for each database."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def escaped(text: str) -> str:
    """A text as COPY reads it."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")

"""The rows of a table as Arrow tables, a bounded number at a time: PostgreSQL's through COPY, SQLite's by a cursor."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv
import sqlalchemy as sa

from store import schema

# Bytes of CSV, rows of a cursor: what is in memory at a time. No row may be longer than the block.
BLOCK_BYTES = 16 * 1024 * 1024
FETCH_ROWS = 50_000
Span: TypeAlias = tuple[datetime, datetime]


def arrow_type(kind: sa.types.TypeEngine[Any]) -> Any:
    """A column's type in Parquet."""
    return pa.timestamp("us", tz="UTC") if isinstance(kind, schema.UtcTime) else _raw_type(kind)


def _raw_type(kind: sa.types.TypeEngine[Any]) -> Any:
    """Its type as it is read: moments are microseconds since 1970."""
    for sql, arrow in (
        (schema.UtcTime, pa.int64()),
        (sa.Boolean, pa.bool_()),
        (sa.Float, pa.float64()),
        (sa.Integer, pa.int64()),
    ):
        if isinstance(kind, sql):
            return arrow
    return pa.string()


def read_rows(connection: sa.Connection, table: sa.Table, span: Span | None) -> Iterator[pa.Table]:
    """The rows of a table, or those of since <= time < until; by time where there is a span, else by the key."""
    read = _read_copy if connection.dialect.name == "postgresql" else _read_cursor
    for rows in read(connection, table, span):
        yield rows.cast(pa.schema([(column.name, arrow_type(column.type)) for column in table.columns]))


def _query(table: sa.Table, span: Span | None, columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    query = sa.select(*columns)
    if span is None:
        return query.order_by(*table.primary_key)
    return query.where(table.c.time >= span[0], table.c.time < span[1]).order_by(table.c.time, *table.primary_key)


def _read_cursor(connection: sa.Connection, table: sa.Table, span: Span | None) -> Iterator[pa.Table]:
    columns = [sa.type_coerce(column, _plain(column.type)).label(column.name) for column in table.columns]
    kinds = pa.schema([(column.name, _raw_type(column.type)) for column in table.columns])
    query = _query(table, span, columns).execution_options(yield_per=FETCH_ROWS)
    for rows in connection.execute(query).partitions():
        yield pa.table(
            [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds.types, strict=True)],
            schema=kinds,
        )


def _plain(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """The type whose values come as SQLite keeps them: numbers and texts."""
    if isinstance(kind, schema.UtcTime):
        return sa.BigInteger()
    return sa.Text() if isinstance(kind, sa.JSON) else kind


def _read_copy(connection: sa.Connection, table: sa.Table, span: Span | None) -> Iterator[pa.Table]:
    columns: list[sa.ColumnElement[Any]] = [
        sa.literal_column(f"(extract(epoch FROM {column.compile(dialect=connection.dialect)}) * 1000000)::bigint")
        if isinstance(column.type, schema.UtcTime)
        else column
        for column in table.columns
    ]
    query = _query(table, span, columns).compile(connection, compile_kwargs={"literal_binds": True})
    convert = pa_csv.ConvertOptions(
        column_types={column.name: _raw_type(column.type) for column in table.columns},
        null_values=[""],  # PostgreSQL writes NULL bare and an empty text in quotes
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["t"],
        false_values=["f"],
    )
    reading = pa_csv.ReadOptions(column_names=[column.name for column in table.columns], block_size=BLOCK_BYTES)
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    driver: Any = connection.connection.cursor()
    with driver as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        file = _CopyFile(copy)
        first = file.read(1)
        if not first:
            return
        file.give_back(first)
        for batch in pa_csv.open_csv(pa.PythonFile(file, mode="r"), reading, parsing, convert):
            yield pa.Table.from_batches([batch])


class _CopyFile:
    """What a COPY sends, as a file."""

    def __init__(self, copy: Any) -> None:
        self._copy = copy
        self._rest = b""
        self.closed = False

    def give_back(self, data: bytes) -> None:
        """Read this again."""
        self._rest = data + self._rest

    def read(self, size: int = -1) -> bytes:
        """So many bytes; fewer at the end alone."""
        parts, length = [self._rest], len(self._rest)
        while size < 0 or length < size:
            data = bytes(self._copy.read())
            if not data:
                break
            parts.append(data)
            length += len(data)
        whole = b"".join(parts)
        self._rest = b"" if size < 0 else whole[size:]
        return whole if size < 0 else whole[:size]

    def close(self) -> None:
        """Nothing more is asked for."""
        self.closed = True

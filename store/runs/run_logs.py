"""The logs of runs: the folded log as bytes with the number of its writes, and the stored lines as few columns.

    before = read_folded(connection, ["llm-70b"]).get("llm-70b")
    save_folded(connection, "llm-70b", before, text)     # False: another writer was quicker

for source, received_us, (kind, time_us, attributes, file, number, id) in stored_lines(connection, run, sources, kinds):
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import orjson
import psycopg
import sqlalchemy as sa
import zstandard

from store.records.event import to_us
from store.tables import run_tables, schema
from store.tables.bulk_rows import insert_into, sqlalchemy_error

_TABLE = run_tables.folded_logs
_LEVEL = 3
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class FoldedBytes:
    """A folded log as it is stored: what `text` means is `goodput`'s; None where the row is damaged."""

    version: int
    text: bytes | None


def read_folded(connection: sa.Connection, runs: Sequence[str]) -> dict[str, FoldedBytes]:
    """The folded logs of some runs; a run that has none yet is left out."""
    found: dict[str, FoldedBytes] = {}
    for i in range(0, len(runs), _BATCH):
        query = sa.select(_TABLE.c.run, _TABLE.c.version, _TABLE.c.folded)
        rows = connection.execute(query.where(_TABLE.c.run.in_(runs[i : i + _BATCH])))
        found |= {run: FoldedBytes(version, _unpacked(folded)) for run, version, folded in rows}
    return found


def _unpacked(packed: bytes) -> bytes | None:
    try:
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError:
        return None


def folded_runs(connection: sa.Connection) -> set[str]:
    """The runs that have a folded log."""
    return set(connection.scalars(sa.select(_TABLE.c.run)))


def is_folded(connection: sa.Connection, run: str) -> bool:
    """Whether a run has a folded log."""
    return connection.scalar(sa.select(_TABLE.c.version).where(_TABLE.c.run == run)) is not None


def save_folded(connection: sa.Connection, run: str, before: FoldedBytes | None, text: bytes) -> bool:
    """Write a run's folded log in the place of `before`; False, and nothing written, where it is no longer that."""
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(text)
    if before is None:
        statement = insert_into(connection, _TABLE).values(run=run, version=1, folded=packed).on_conflict_do_nothing()
    else:
        same = (_TABLE.c.run == run) & (_TABLE.c.version == before.version)
        statement = sa.update(_TABLE).where(same).values(version=before.version + 1, folded=packed)
    # Not by the count of rows: an INSERT with a conflict clause tells none on PostgreSQL.
    return connection.scalar(statement.returning(_TABLE.c.version)) is not None


_FETCH = 5_000

Line: TypeAlias = tuple[str, int, dict[str, Any], str | None, int | None, str]

# Microseconds since 1970, exactly: a timestamp is a whole number of them.
_COPY = """
COPY (
    SELECT source, (extract(epoch FROM received) * 1000000)::bigint, kind,
        (extract(epoch FROM time) * 1000000)::bigint, file, line, id, attributes
    FROM events WHERE run = %s AND source = ANY(%s) AND kind = ANY(%s) AND time >= %s
) TO STDOUT"""


def stored_lines(
    connection: sa.Connection, run: str, sources: Sequence[str], kinds: Sequence[str], since: datetime | None = None
) -> Iterator[tuple[str, int, Line]]:
    """Source, microseconds of the receipt, and what tells a line, of all lines stored for `since` or later."""
    if connection.dialect.name == "postgresql":
        yield from _copied(connection, run, sources, kinds, since)
        return
    table = schema.events
    query = sa.select(
        *(table.c.source, table.c.received, table.c.kind, table.c.time),
        *(table.c.attributes, table.c.file, table.c.line, table.c.id),
    ).where(table.c.run == run, table.c.source.in_(sources), table.c.kind.in_(kinds))
    if since is not None:
        query = query.where(table.c.time >= since)
    with connection.execute(query.execution_options(yield_per=_FETCH)) as rows:
        for source, received, kind, time, attributes, file, number, name in rows:
            yield source, to_us(received), (kind, to_us(time), attributes, file, number, name)


def _copied(
    connection: sa.Connection, run: str, sources: Sequence[str], kinds: Sequence[str], since: datetime | None
) -> Iterator[tuple[str, int, Line]]:
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    asked = (run, list(sources), list(kinds), since or datetime.min.replace(tzinfo=UTC))
    try:
        # A COPY takes no parameters of its own: the client writes them in.
        with psycopg.ClientCursor(driver) as cursor, cursor.copy(_COPY, asked) as copy:
            rest = b""
            for block in copy:
                *lines, rest = (rest + bytes(block)).split(b"\n")
                yield from map(_line, lines)
    except psycopg.Error as error:
        raise sqlalchemy_error("COPY events TO STDOUT", error) from error


def _line(text: bytes) -> tuple[str, int, Line]:
    source, received, kind, time, file, number, name, attributes = text.split(b"\t")
    if b"\\" in text:
        file, name, attributes = map(_unescaped, (file, name, attributes))
    line = (
        kind.decode(),
        int(time),
        orjson.loads(attributes),
        None if file == b"\\N" else file.decode(),
        None if number == b"\\N" else int(number),
        name.decode(),
    )
    return source.decode(), int(received), line


def _unescaped(text: bytes) -> bytes:
    """A field without COPY's escapes; a null stays as it is."""
    if b"\\" not in text or text == b"\\N":
        return text
    parts = text.split(b"\\\\")
    for escape, plain in ((b"\\t", b"\t"), (b"\\n", b"\n"), (b"\\r", b"\r")):
        parts = [part.replace(escape, plain) for part in parts]
    return b"\\".join(parts)

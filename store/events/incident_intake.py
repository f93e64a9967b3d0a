"""The intake: what fault events come to that are stored and that no incident counts yet, a row a batch.

A row is written in the transaction of its events and deleted in that of their incidents: each is counted once.
`diagnosis/incidents/intake.py` does both, and knows what a row's text means.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
import zstandard

from store.tables import schema

# Of one fold: at most half a second of work, so that new faults soon get their turn.
MOST_EVENTS = 20_000
# Rows of one fold, however small: 12,500 sidecars send one event each.
_MOST_ROWS = 5_000
# Packs as well as any for one read, and costs the least.
_LEVEL = -1


@dataclass(frozen=True, slots=True)
class IntakeBatch:
    """A row of the intake, unpacked by `unpack`."""

    seq: int
    count: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class IntakeBacklog:
    """What the intake holds: events that wait, since when the oldest does, and events that were set aside."""

    events: int
    oldest: datetime | None
    set_aside: int


class IntakeError(ValueError):
    """A row of the intake that is not what was written."""


def add_intake(connection: sa.Connection, text: bytes, count: int, received: datetime) -> None:
    """Keep what `count` fault events come to."""
    connection.execute(sa.insert(schema.intake).values(received=received, count=count, events=pack(text)))


def pack(text: bytes) -> bytes:
    """A row's text as it is kept."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text)


def anything_waits(connection: sa.Connection) -> bool:
    """Whether there is a row to fold."""
    table = schema.intake
    return connection.scalar(sa.select(sa.literal(1)).where(table.c.error.is_(None)).limit(1)) is not None


def oldest_batches(connection: sa.Connection, most_events: int) -> list[IntakeBatch]:
    """The oldest rows that wait, at least one, of so many events in all."""
    table = schema.intake
    sizes = sa.select(table.c.seq, table.c.count).where(table.c.error.is_(None)).order_by(table.c.seq)
    taken: list[int] = []
    total = 0
    for seq, count in connection.execute(sizes.limit(_MOST_ROWS)):
        total += count
        if taken and total > most_events:
            break
        taken.append(seq)
    return read_batches(connection, taken)


def read_batches(connection: sa.Connection, seqs: Sequence[int]) -> list[IntakeBatch]:
    """Those of the rows that are still there and not set aside."""
    table = schema.intake
    query = sa.select(table.c.seq, table.c.count, table.c.events)
    query = query.where(table.c.seq.in_(seqs), table.c.error.is_(None)).order_by(table.c.seq)
    return [IntakeBatch(*row) for row in connection.execute(query)]


def unpack(batch: IntakeBatch) -> bytes:
    """The text of a row.

    Raises:
        IntakeError: it is damaged.
    """
    try:
        return zstandard.ZstdDecompressor().decompress(batch.packed)
    except zstandard.ZstdError as error:
        raise IntakeError(f"row {batch.seq} of the intake is damaged: {error}") from error


def remove_batches(connection: sa.Connection, batches: Sequence[IntakeBatch]) -> None:
    """Delete rows: their events are in incidents now."""
    connection.execute(sa.delete(schema.intake).where(schema.intake.c.seq.in_([batch.seq for batch in batches])))


def set_aside(connection: sa.Connection, batch: IntakeBatch, error: str) -> None:
    """Keep a row, or what is left of it, out of the way of the others, with the reason.

    `UPDATE intake SET error = NULL` brings it back.
    """
    kept = {"events": batch.packed, "count": batch.count, "error": error[:1000]}
    connection.execute(sa.update(schema.intake).where(schema.intake.c.seq == batch.seq).values(kept))


def read_waiting(connection: sa.Connection) -> IntakeBacklog:
    """What the intake holds now."""
    table = schema.intake
    count = sa.func.coalesce(sa.func.sum(table.c.count), 0)
    waits = table.c.error.is_(None)
    row = connection.execute(sa.select(count, sa.func.min(table.c.received, type_=schema.UtcTime())).where(waits)).one()
    aside = connection.scalar(sa.select(count).where(~waits))
    return IntakeBacklog(int(row[0]), row[1], int(aside or 0))

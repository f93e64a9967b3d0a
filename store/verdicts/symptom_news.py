"""Events that may be symptoms and that no verdict has weighed yet: a row a batch, written in the events' transaction.

    add_news(connection, events, received)      # beside the events themselves
    batches = oldest_news(connection, 20_000)
    remove_news(connection, batches)            # in the transaction of what was made of them

Whoever weighs them deletes the rows with what came of it: no event is passed over, whichever process took it in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
import sqlalchemy as sa
import zstandard

from store.records.event import Event
from store.tables import verdict_tables

_TABLE = verdict_tables.symptom_news
_LEVEL = -1
_MOST_ROWS = 5_000
_DECODER = msgspec.json.Decoder(tuple[Event, ...])


@dataclass(frozen=True, slots=True)
class NewsBatch:
    """A row, unpacked. `error`: why it cannot be read; then it has no events."""

    seq: int
    received: datetime
    events: Sequence[Event]
    error: str | None = None


def add_news(connection: sa.Connection, events: Sequence[Event], received: datetime) -> None:
    """Keep events for who weighs them."""
    if events:
        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.json.encode(events))
        connection.execute(sa.insert(_TABLE).values(received=received, count=len(events), events=packed))


def oldest_news(connection: sa.Connection, most_events: int) -> list[NewsBatch]:
    """The oldest rows, at least one, of so many events in all."""
    sizes = sa.select(_TABLE.c.seq, _TABLE.c.count).order_by(_TABLE.c.seq).limit(_MOST_ROWS)
    taken: list[int] = []
    total = 0
    for seq, count in connection.execute(sizes):
        total += count
        if taken and total > most_events:
            break
        taken.append(seq)
    if not taken:
        return []
    query = sa.select(_TABLE).where(_TABLE.c.seq.in_(taken)).order_by(_TABLE.c.seq)
    return [_unpacked(row.seq, row.received, row.events) for row in connection.execute(query)]


def remove_news(connection: sa.Connection, batches: Iterable[NewsBatch]) -> None:
    """Delete rows: their events are weighed."""
    seqs = [batch.seq for batch in batches]
    for begin in range(0, len(seqs), _MOST_ROWS):
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.seq.in_(seqs[begin : begin + _MOST_ROWS])))


def news_seqs(connection: sa.Connection) -> list[tuple[int, datetime]]:
    """The numbers of all rows, and when each came in."""
    rows = connection.execute(sa.select(_TABLE.c.seq, _TABLE.c.received).order_by(_TABLE.c.seq))
    return [(row.seq, row.received) for row in rows]


def count_news(connection: sa.Connection) -> int:
    """How many events wait to be weighed."""
    return int(connection.scalar(sa.select(sa.func.coalesce(sa.func.sum(_TABLE.c.count), 0))) or 0)


def _unpacked(seq: int, received: datetime, packed: bytes) -> NewsBatch:
    try:
        return NewsBatch(seq, received, _DECODER.decode(zstandard.ZstdDecompressor().decompress(packed)))
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        return NewsBatch(seq, received, (), f"row {seq} of the symptoms' news is damaged: {error}")

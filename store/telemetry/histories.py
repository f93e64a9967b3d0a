"""Stretches of a Prometheus's history that were taken, so that an import goes on where it was and asks for none twice.

    stretches = read_stretches(connection, source)
    gaps = missing(stretches, since, until)
    note_stretch(connection, HistoryStretch(source, since, until, ...))

A stretch grows: it is written anew, up to a later moment, in the transaction that writes what was in between. Its
`state` is what the watch and the roll-ups know at its end; an import that begins there goes on from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa
import zstandard

from store.tables import schema
from store.tables.bulk_rows import upsert

_LEVEL = 3


@dataclass(frozen=True, slots=True)
class HistoryStretch:
    """since <= time < until of one source was taken. The state is plain JSON."""

    source: str
    since: datetime
    until: datetime
    samples: int
    skipped: int
    done: datetime
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryGap:
    """since <= time < until was not taken; `before` is the stretch that ends where it begins."""

    since: datetime
    until: datetime
    before: HistoryStretch | None = None


def read_stretches(connection: sa.Connection, source: str) -> list[HistoryStretch]:
    """Every stretch of a source, in order of time."""
    table = schema.histories
    query = sa.select(table).where(table.c.source == source).order_by(table.c.since)
    return [HistoryStretch(**{**row, "state": _unpacked(row["state"])}) for row in connection.execute(query).mappings()]


def note_stretch(connection: sa.Connection, stretch: HistoryStretch) -> None:
    """Write a stretch, new or longer than before; in the transaction that wrote what was taken."""
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(
        orjson.dumps(stretch.state, option=orjson.OPT_SERIALIZE_NUMPY)
    )
    row = {name: getattr(stretch, name) for name in HistoryStretch.__slots__}
    upsert(connection, schema.histories, [{**row, "state": packed}])


def missing(stretches: Sequence[HistoryStretch], since: datetime, until: datetime) -> Iterator[HistoryGap]:
    """What of a range was not taken, in order of time."""
    before: HistoryStretch | None = None
    for stretch in stretches:
        if stretch.since > since and since < until:
            yield HistoryGap(since, min(stretch.since, until), before)
        if stretch.until >= since:
            since, before = stretch.until, stretch
    if since < until:
        yield HistoryGap(since, until, before)


def _unpacked(packed: bytes) -> Any:
    return orjson.loads(zstandard.ZstdDecompressor().decompress(packed))

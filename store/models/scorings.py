"""What each model said of every node at some moments, packed: kept apart from the scores that are served.

A scoring of 12,500 nodes is one row. Whoever judges a model reads some dozens of them, so the nodes need no rows.
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

_TABLE = schema.scorings
_DIGITS = 8
# Unpacked: a hundred thousand nodes with long names take some 10 MB.
_MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Scoring:
    """One model's scores of one moment; `spread`: of each feature how many nodes lay in each part of its profile."""

    model: str
    horizon_h: int
    time: datetime
    scores: Mapping[str, float]
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)


def save_scoring(connection: sa.Connection, scoring: Scoring) -> None:
    """Keep a scoring; the same model and moment again replaces it."""
    scores = {node: round(score, _DIGITS) for node, score in scoring.scores.items()}
    row = {
        "model": scoring.model,
        "time": scoring.time,
        "horizon_h": scoring.horizon_h,
        "scores": _pack(scores),
        "spread": _pack({name: list(parts) for name, parts in scoring.spread.items()}) if scoring.spread else None,
    }
    upsert(connection, _TABLE, [row])


def read_scorings(
    connection: sa.Connection, model: str, since: datetime | None = None, until: datetime | None = None
) -> Iterator[Scoring]:
    """A model's scorings of since <= time < until, oldest first."""
    query = sa.select(_TABLE).where(_TABLE.c.model == model).order_by(_TABLE.c.time)
    if since is not None:
        query = query.where(_TABLE.c.time >= since)
    if until is not None:
        query = query.where(_TABLE.c.time < until)
    for row in connection.execute(query):
        spread = {} if row.spread is None else _unpack(row.spread)
        yield Scoring(row.model, row.horizon_h, row.time, _unpack(row.scores), spread)


def newest_scoring_of(connection: sa.Connection, model: str, at: datetime | None = None) -> Scoring | None:
    """A model's newest scoring, no later than a moment."""
    query = sa.select(sa.func.max(_TABLE.c.time, type_=schema.UtcTime())).where(_TABLE.c.model == model)
    moment = connection.scalar(query if at is None else query.where(_TABLE.c.time <= at))
    return None if moment is None else next(read_scorings(connection, model, moment), None)


def newest_moment(connection: sa.Connection, model: str) -> datetime | None:
    """When a model last scored so."""
    query = sa.select(sa.func.max(_TABLE.c.time, type_=schema.UtcTime())).where(_TABLE.c.model == model)
    found: datetime | None = connection.scalar(query)
    return found


def drop_scorings(connection: sa.Connection, before: datetime) -> int:
    """Let go of scorings of before a moment; returns how many."""
    return connection.execute(sa.delete(_TABLE).where(_TABLE.c.time < before)).rowcount


def _pack(document: Mapping[str, object]) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(orjson.dumps(document))


def _unpack(packed: bytes) -> Any:
    return orjson.loads(zstandard.ZstdDecompressor().decompress(packed, _MOST_BYTES))

"""The newest scores of links: how likely each is lost within a horizon; a scoring takes the place of the one before."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.score import Reason

_TABLE = schema.link_scores


@dataclass(frozen=True, slots=True)
class LinkScore:
    """The probability that a link is lost in (time, time + horizon_h]; `ends` are the names of both its ends."""

    link: str
    ends: tuple[str, ...]
    horizon_h: int
    time: datetime
    score: float
    reasons: tuple[Reason, ...]
    model: str


def save_link_scores(connection: sa.Connection, horizon_h: int, scores: Sequence[LinkScore]) -> None:
    """Put a scoring of all links in the place of the last one of its horizon."""
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.horizon_h == horizon_h))
    rows = [{**asdict(score), "ends": list(score.ends)} for score in scores]
    if rows:
        connection.execute(sa.insert(_TABLE), rows)


def link_score_page(
    connection: sa.Connection, horizon_h: int, limit: int, after: tuple[float, str] | None = None
) -> list[dict[str, Any]]:
    """Rows of the newest scoring, the likeliest to be lost first, those after a (score, link)."""
    query = sa.select(_TABLE).where(_TABLE.c.horizon_h == horizon_h)
    if after is not None:
        same = sa.and_(_TABLE.c.score == after[0], _TABLE.c.link > after[1])
        query = query.where(sa.or_(_TABLE.c.score < after[0], same))
    query = query.order_by(_TABLE.c.score.desc(), _TABLE.c.link).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]

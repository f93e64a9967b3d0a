"""The newest scores that a database holds, as tests compare them."""

from datetime import datetime

import sqlalchemy as sa

from store.models.scores import score_of
from store.records.score import Score
from store.tables import schema


def latest_scores(connection: sa.Connection, at: datetime | None = None) -> dict[str, dict[int, Score]]:
    """The newest scores by node and horizon (hours), of all time or of the moments up to `at`.

    They are those of the newest scoring of each horizon: a node that was not scored then (it was out of service,
    or is gone) has none, rather than an old one.
    """
    table = schema.scores
    newest = sa.select(table.c.horizon_h, sa.func.max(table.c.time, type_=schema.UtcTime()).label("time"))
    if at is not None:
        newest = newest.where(table.c.time <= at)
    last = newest.group_by(table.c.horizon_h).subquery()
    query = sa.select(table).join(last, sa.and_(table.c.horizon_h == last.c.horizon_h, table.c.time == last.c.time))
    found: dict[str, dict[int, Score]] = {}
    for row in connection.execute(query.order_by(table.c.node, table.c.horizon_h)):
        found.setdefault(row.node, {})[row.horizon_h] = score_of(row)
    return found

"""Reads of what the predictor made: the newest scores, a node's score over time, the models that make them."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.model import StoredModel
from store.score import Reason, Score


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


def score_history(connection: sa.Connection, node: str, since: datetime) -> list[Score]:
    """A node's scores from a moment on, of every horizon, oldest first."""
    table = schema.scores
    query = sa.select(table).where(table.c.node == node, table.c.time >= since)
    return [score_of(row) for row in connection.execute(query.order_by(table.c.time, table.c.horizon_h))]


def scoring_times(connection: sa.Connection, since: datetime, until: datetime) -> list[datetime]:
    """The moments of scorings in [since, until), oldest first."""
    table = schema.scores
    query = sa.select(table.c.time).where(table.c.time >= since, table.c.time < until).distinct()
    return list(connection.scalars(query.order_by(table.c.time)))


def score_of(row: Any) -> Score:
    """The score of a row of `scores`."""
    return Score(
        node=row.node,
        time=row.time,
        horizon_h=row.horizon_h,
        score=row.score,
        reasons=tuple(
            Reason(reason["text"], reason["contribution"], tuple(reason["events"])) for reason in row.reasons
        ),
        model=row.model,
    )


def serving_model(connection: sa.Connection, horizon_h: int, at: datetime | None = None) -> StoredModel | None:
    """The champion of a horizon; with `at`, one that was champion and had learned from nothing later, if there is one.

    Challengers, and what was rejected, never serve.
    """
    table = schema.models
    query = sa.select(table).where(table.c.horizon_h == horizon_h)
    champions = query.where(table.c.role == "champion")
    newest = (table.c.trained_until.desc(), table.c.created.desc(), table.c.id)
    tries = [champions]
    if at is not None:
        known = table.c.trained_until <= at
        tries = [champions.where(known), query.where(table.c.role == "retired", known), champions]
    for one in tries:
        row = connection.execute(one.order_by(*newest).limit(1)).mappings().first()
        if row is not None:
            return _model_of(row)
    return None


def read_model(connection: sa.Connection, ident: str) -> StoredModel | None:
    """The model of an id."""
    row = connection.execute(sa.select(schema.models).where(schema.models.c.id == ident)).mappings().first()
    return None if row is None else _model_of(row)


def challengers(connection: sa.Connection, horizon_h: int) -> list[StoredModel]:
    """The models of a horizon that are on trial, the oldest first."""
    table = schema.models
    query = sa.select(table).where(table.c.horizon_h == horizon_h, table.c.role == "challenger")
    return [_model_of(row) for row in connection.execute(query.order_by(table.c.created, table.c.id)).mappings()]


def _model_of(row: Any) -> StoredModel:
    return StoredModel(**{**row, "features": tuple(row["features"])})

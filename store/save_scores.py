"""Writes of what the predictor makes: models and scores, idempotent, in the caller's transaction."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.bulk_rows import insert_rows
from store.model import StoredModel
from store.score import Score

_COLUMNS = ("node", "horizon_h", "time", "score", "reasons", "model")


def save_scores(connection: sa.Connection, scores: Iterable[Score]) -> int:
    """Save scores; a later score of the same node, horizon and moment replaces the earlier one. Returns how many."""
    unique = {(score.node, score.horizon_h, score.time): score for score in scores}
    moments = {(horizon_h, moment) for _node, horizon_h, moment in unique}
    if any(_is_scored(connection, *moment) for moment in moments):
        _upsert(connection, schema.scores, [{**asdict(one), "reasons": _wire(one)} for one in unique.values()])
    else:
        rows = [
            (one.node, one.horizon_h, one.time, one.score, orjson.dumps(one.reasons).decode(), one.model)
            for one in unique.values()
        ]
        insert_rows(connection, schema.scores, _COLUMNS, rows)
    return len(unique)


def _is_scored(connection: sa.Connection, horizon_h: int, moment: datetime) -> bool:
    table = schema.scores
    found = sa.select(table.c.node).where(table.c.horizon_h == horizon_h, table.c.time == moment).limit(1)
    return connection.scalar(found) is not None


def _wire(score: Score) -> list[dict[str, Any]]:
    return [{**asdict(reason), "events": list(reason.events)} for reason in score.reasons]


def forget_scoring(connection: sa.Connection, moment: datetime) -> None:
    """Let go of the scores of one moment, of every horizon."""
    table = schema.scores
    horizons = sa.select(schema.models.c.horizon_h)
    connection.execute(table.delete().where(table.c.time == moment, table.c.horizon_h.in_(horizons)))


def save_model(connection: sa.Connection, model: StoredModel) -> None:
    """Save a model; the same id again replaces it."""
    row = {**asdict(model), "features": list(model.features), "metrics": dict(model.metrics)}
    _upsert(connection, schema.models, [row])


def _upsert(connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    changed = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), rows)

"""Writes of what the predictor makes: models and scores, idempotent, in the caller's transaction."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.model import StoredModel
from store.score import Score


def save_scores(connection: sa.Connection, scores: Iterable[Score]) -> int:
    """Save scores; a later score of the same node, horizon and moment replaces the earlier one. Returns how many."""
    rows = [
        {
            "node": score.node,
            "horizon_h": score.horizon_h,
            "time": score.time,
            "score": score.score,
            "reasons": [{**asdict(reason), "events": list(reason.events)} for reason in score.reasons],
            "model": score.model,
        }
        for score in scores
    ]
    unique = {(row["node"], row["horizon_h"], row["time"]): row for row in rows}
    _upsert(connection, schema.scores, list(unique.values()))
    return len(unique)


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

"""What is known of the models without loading them, and how the last training went."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema

# The audit's subject of what concerns no single model.
TRAINING = "training"
_HEAVY = ("blob", "profile", "features")


@dataclass(frozen=True, slots=True)
class LastTraining:
    """The newest word on training in the audit: `started`, `trained`, `failed`, `put off`; when, by whom, and why."""

    time: datetime
    outcome: str
    by: str
    detail: dict[str, Any]


def newest_champion(connection: sa.Connection) -> Any | None:
    """The newest champion's `id created trained_until horizon_h metrics`; None before the first training."""
    table = schema.models
    columns = (table.c.id, table.c.created, table.c.trained_until, table.c.horizon_h, table.c.metrics)
    query = sa.select(*columns).where(table.c.role == "champion")
    return connection.execute(query.order_by(table.c.created.desc(), table.c.horizon_h, table.c.id).limit(1)).first()


def list_models(connection: sa.Connection, role: str | None = None, ident: str | None = None) -> list[dict[str, Any]]:
    """Models without what is heavy in them: those that serve first, by horizon, then the newest."""
    table = schema.models
    columns = [column for column in table.columns if column.name not in _HEAVY]
    query = sa.select(*columns, sa.func.length(table.c.blob).label("bytes"))
    for column, value in ((table.c.role, role), (table.c.id, ident)):
        if value is not None:
            query = query.where(column == value)
    rank = sa.case((table.c.role == "champion", 0), (table.c.role == "challenger", 1), else_=2)
    order = (rank, table.c.horizon_h, table.c.created.desc(), table.c.id)
    return [{str(name): value for name, value in row.items()} for row in _rows(connection, query.order_by(*order))]


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> Any:
    return connection.execute(query).mappings()


def last_training(connection: sa.Connection) -> LastTraining | None:
    """How the last training went; None where none was begun."""
    table = schema.audit
    query = sa.select(table).where(table.c.subject == TRAINING).order_by(table.c.seq.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else LastTraining(row.time, row.action, row.actor, dict(row.detail))


def count_outages(connection: sa.Connection, since: datetime, until: datetime) -> int:
    """How many unplanned outages began within a window."""
    table = schema.outages
    query = sa.select(sa.func.count()).where(table.c.start >= since, table.c.start < until, table.c.planned.is_(False))
    return int(connection.scalar(query.select_from(table)) or 0)


def model_trouble(connection: sa.Connection) -> str | None:
    """What is wrong with the models that serve, in words; None where nothing is."""
    champions, last = list_models(connection, role="champion"), last_training(connection)
    if not champions:
        return "none yet: run `foreshock train`"
    said = []
    if last is not None and last.outcome == "failed":
        said.append(f"the last training failed: {str(last.detail.get('why', ''))[-200:]}")
    for model in champions:
        for name, meaning in _DRIFTS.items():
            if model["checks"].get(name, {}).get("state") == "drifted":
                said.append(f"{model['id']}: {meaning}")
    return "; ".join(said) or None


_DRIFTS = {
    "drift": "the nodes no longer look as those did that it learned from",
    "calibration": "outages do not come as often as it says",
}

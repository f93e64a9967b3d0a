"""The registry of models: their bytes, their roles, and the audit of each change of a role."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, get_args

import sqlalchemy as sa

from store.database.audit_chain import AuditEntry, append_audit
from store.records.score import ModelKind, ModelRole
from store.tables import schema
from store.tables.bulk_rows import upsert

MODEL_ROLES: tuple[ModelRole, ...] = get_args(ModelRole)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One fitted model of one horizon. `trained_until` is the end of the data that it learned from.

    Attributes:
        data: what it learned from: `rows positives nodes since until sha256`, the last over the rows themselves.
        code: the program's version and the digest of its features' definitions.
        why, by, since: why it has its role, who gave it that, and when (None: as it was made).
        profile: how each feature was spread when it learned, which drift is measured against.
        checks: what was last found of it: its trial, its calibration, its drift.
    """

    id: str
    created: datetime
    trained_until: datetime
    horizon_h: int
    features: tuple[str, ...]
    metrics: Mapping[str, Any]
    blob: bytes
    sha256: str
    kind: ModelKind = "gbt"
    role: ModelRole = "champion"
    data: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    why: str = ""
    by: str = ""
    since: datetime | None = None
    profile: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Any] = field(default_factory=dict)


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


_MODELS = schema.models
# One at a time changes roles: any number would do, this one is ours.
_LOCK = 7_301_005


class RoleError(ValueError):
    """A change of a role that cannot be made; the message says why."""


def lock_roles(connection: sa.Connection) -> None:
    """Let nobody else change roles until the transaction ends; on SQLite whoever writes is alone anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def give_role(connection: sa.Connection, ident: str, role: ModelRole, why: str, by: str, now: datetime) -> None:
    """Give a model a role; a new champion retires the one of its horizon. Having the role already changes nothing.

    Raises:
        RoleError: there is no such model.
    """
    lock_roles(connection)
    row = connection.execute(sa.select(_MODELS.c.role, _MODELS.c.horizon_h).where(_MODELS.c.id == ident)).first()
    if row is None:
        raise RoleError(f"no model has the id {ident!r}: `foreshock models list` shows those there are")
    if role == "champion":
        before = _MODELS.c.horizon_h == row.horizon_h, _MODELS.c.role == "champion", _MODELS.c.id != ident
        for other in connection.scalars(sa.select(_MODELS.c.id).where(*before)).all():
            _write(connection, other, ("champion", "retired"), f"followed by {ident}", by, now)
    if row.role != role:
        _write(connection, ident, (row.role, role), why, by, now)


def _write(
    connection: sa.Connection, ident: str, roles: tuple[str, ModelRole], why: str, by: str, now: datetime
) -> None:
    was, role = roles
    values = {"role": role, "why": why, "by": by, "since": now}
    connection.execute(sa.update(_MODELS).where(_MODELS.c.id == ident).values(**values))
    note_audit(connection, now, by, (role, ident), {"was": was, "why": why})


def retire(connection: sa.Connection, ident: str, why: str, by: str, now: datetime) -> None:
    """Take a model out of use.

    Raises:
        RoleError: there is no such model, or it is the only one that serves its horizon.
    """
    lock_roles(connection)
    role = connection.scalar(sa.select(_MODELS.c.role).where(_MODELS.c.id == ident))
    if role == "champion":
        raise RoleError(f"{ident} is the champion: promote another model of its horizon, which retires it")
    give_role(connection, ident, "rejected" if role == "challenger" else "retired", why, by, now)


def note_training(connection: sa.Connection, now: datetime, outcome: str, by: str, detail: Mapping[str, Any]) -> None:
    """Write down how a training went: `started`, `trained`, `failed`, `put off`."""
    note_audit(connection, now, by, (outcome, TRAINING), detail)


def note_audit(
    connection: sa.Connection, now: datetime, by: str, what: tuple[str, str], detail: Mapping[str, Any]
) -> None:
    """Add an audit row on (action, subject)."""
    action, subject = what
    append_audit(connection, [AuditEntry(now, by, action, subject, detail)])


def save_checks(connection: sa.Connection, ident: str, checks: Mapping[str, Any]) -> None:
    """Keep what was found of a model; what `checks` does not name stays as it was."""
    found = connection.scalar(sa.select(_MODELS.c.checks).where(_MODELS.c.id == ident))
    if found is not None:
        merged = {**found, **checks}
        connection.execute(sa.update(_MODELS).where(_MODELS.c.id == ident).values(checks=merged))


def save_model(connection: sa.Connection, model: StoredModel) -> None:
    """Save a model; the same id again replaces it."""
    row = {**asdict(model), "features": list(model.features), "metrics": dict(model.metrics)}
    upsert(connection, schema.models, [row])

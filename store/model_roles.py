"""Which model serves: every change of a role is written together with who made it, why and when."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.model import ModelRole
from store.read_models import TRAINING

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
    note(connection, now, by, (role, ident), {"was": was, "why": why})


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
    note(connection, now, by, (outcome, TRAINING), detail)


def note(connection: sa.Connection, now: datetime, by: str, what: tuple[str, str], detail: Mapping[str, Any]) -> None:
    """Add an audit row on (action, subject)."""
    action, subject = what
    row = {"time": now, "actor": by, "action": action, "subject": subject, "detail": dict(detail)}
    connection.execute(schema.audit.insert().values(**row))


def save_checks(connection: sa.Connection, ident: str, checks: Mapping[str, Any]) -> None:
    """Keep what was found of a model; what `checks` does not name stays as it was."""
    found = connection.scalar(sa.select(_MODELS.c.checks).where(_MODELS.c.id == ident))
    if found is not None:
        merged = {**found, **checks}
        connection.execute(sa.update(_MODELS).where(_MODELS.c.id == ident).values(checks=merged))

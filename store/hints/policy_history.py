"""The policies and the site rules that were in force, each with its time; each change is in the audit, too."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.database.audit_chain import AuditEntry, append_audit
from store.tables import hint_tables, schema

ACTOR_CONFIGURATION = "configuration"
_POLICIES = hint_tables.policies


def note_policy(connection: sa.Connection, version: str, text: str, now: datetime) -> bool:
    """Write down that a policy is in force, unless it was already; whether it is another than before."""
    was = newest_policy(connection)
    if was == version:
        return False
    connection.execute(_POLICIES.insert().values(time=now, version=version, text=text))
    _note(connection, now, "policy", {"version": version, "was": was, "sha256": _digest(text)})
    return True


def newest_policy(connection: sa.Connection) -> str | None:
    """The version that came into force last."""
    version: str | None = connection.scalar(sa.select(_POLICIES.c.version).order_by(_POLICIES.c.seq.desc()).limit(1))
    return version


def newest_policy_keys(connection: sa.Connection) -> Mapping[str, Any]:
    """The keys of the policy that came into force last; none where no server has run yet."""
    newest = sa.select(_POLICIES.c.text).order_by(_POLICIES.c.seq.desc()).limit(1)
    text: str | None = connection.scalar(newest)
    return {} if text is None else dict(json.loads(text))


def policies_page(connection: sa.Connection, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The policies that came into force, the newest first, at most `limit`, with a `seq` under `before`."""
    query = sa.select(_POLICIES).order_by(_POLICIES.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(_POLICIES.c.seq < before)
    return [{str(name): value for name, value in row.items()} for row in connection.execute(query).mappings()]


_RULES = schema.rules


def note_rules(connection: sa.Connection, version: str, text: str, now: datetime) -> bool:
    """Write down that rules are in force, unless they were already; whether they are others than before."""
    newest = connection.scalar(sa.select(_RULES.c.version).order_by(_RULES.c.seq.desc()).limit(1))
    if newest == version:
        return False
    connection.execute(_RULES.insert().values(time=now, version=version, text=text))
    _note(connection, now, "rules", {"version": version, "was": newest, "sha256": _digest(text)})
    return True


def _note(connection: sa.Connection, now: datetime, subject: str, detail: dict[str, Any]) -> None:
    append_audit(connection, [AuditEntry(now, ACTOR_CONFIGURATION, "in force", subject, detail)])


def _digest(text: str) -> str:
    """By which the text that stands in its own table can be checked."""
    return hashlib.sha256(text.encode()).hexdigest()


def rules_page(connection: sa.Connection, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The rules that came into force, the newest first, at most `limit`, with a `seq` under `before`."""
    query = sa.select(_RULES).order_by(_RULES.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(_RULES.c.seq < before)
    return [{str(name): value for name, value in row.items()} for row in connection.execute(query).mappings()]

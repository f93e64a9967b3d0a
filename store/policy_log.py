"""Which policy was in force when."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema

_POLICIES = schema.policies


def note_policy(connection: sa.Connection, version: str, text: str, now: datetime) -> bool:
    """Write down that a policy is in force, unless it was already; whether it is another than before."""
    if newest_policy(connection) == version:
        return False
    connection.execute(_POLICIES.insert().values(time=now, version=version, text=text))
    return True


def newest_policy(connection: sa.Connection) -> str | None:
    """The version that came into force last."""
    version: str | None = connection.scalar(sa.select(_POLICIES.c.version).order_by(_POLICIES.c.seq.desc()).limit(1))
    return version


def policies_page(connection: sa.Connection, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The policies that came into force, the newest first, at most `limit`, with a `seq` under `before`."""
    query = sa.select(_POLICIES).order_by(_POLICIES.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(_POLICIES.c.seq < before)
    return [{str(name): value for name, value in row.items()} for row in connection.execute(query).mappings()]

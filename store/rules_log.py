"""Which rules of the site were in force when."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema

_RULES = schema.rules


def note_rules(connection: sa.Connection, version: str, text: str, now: datetime) -> bool:
    """Write down that rules are in force, unless they were already; whether they are others than before."""
    newest = connection.scalar(sa.select(_RULES.c.version).order_by(_RULES.c.seq.desc()).limit(1))
    if newest == version:
        return False
    connection.execute(_RULES.insert().values(time=now, version=version, text=text))
    return True


def rules_page(connection: sa.Connection, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """The rules that came into force, the newest first, at most `limit`, with a `seq` under `before`."""
    query = sa.select(_RULES).order_by(_RULES.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(_RULES.c.seq < before)
    return [{str(name): value for name, value in row.items()} for row in connection.execute(query).mappings()]

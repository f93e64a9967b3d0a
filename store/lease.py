"""Leases: of any number of API processes, one runs a background loop at a time.

A lease lapses by itself: a holder that has died is followed by another after `ttl_s`.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.database import writing


def acquire(engine: sa.Engine, name: str, holder: str, now: datetime, ttl_s: float) -> bool:
    """Take or renew a lease. False while somebody else holds it.

    `now` is the real time, on hosts whose clocks agree to much less than `ttl_s`.
    """
    table = schema.leases
    with writing(engine).begin() as connection:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        values = {"holder": holder, "until": now + timedelta(seconds=ttl_s)}
        statement = dialect.insert(table).values(name=name, **values)
        free = sa.or_(table.c.until <= now, table.c.holder == holder)
        connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values, where=free))
        return connection.scalar(sa.select(table.c.holder).where(table.c.name == name)) == holder


def release(engine: sa.Engine, name: str, holder: str) -> None:
    """Give a lease back, if it is ours."""
    table = schema.leases
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(table).where(table.c.name == name, table.c.holder == holder))

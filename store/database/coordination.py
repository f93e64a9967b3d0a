"""Leases and marks, by which several API processes work on one database.

    acquire(engine, "loops", holder, now=None, ttl_s=3.5)     # one process at a time holds a lease; it lapses by itself
    move_mark(connection, FAULTS)                             # in the transaction that makes the news
    read_marks(connection)                                    # {"faults": 7, "hints": 3}: the numbers only grow

The clock of the database alone decides when a lease lapses. A host with a wrong clock neither steals a lease nor loses
its own. On SQLite that clock is the machine's, which all its processes share.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.database.connections import writing
from store.tables import schema
from store.tables.bulk_rows import insert_into

# SQLite's moment in microseconds since 1970, as `schema.UtcTime` keeps it; julianday's milliseconds are exact enough.
_SQLITE_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"


def acquire(engine: sa.Engine, name: str, holder: str, now: datetime | None, ttl_s: float) -> bool:
    """Take or renew a lease. False while somebody else holds it.

    Args:
        now: None for the database's own clock; a moment in tests.
        ttl_s: the lease lapses so long after the database took the call.
    """
    table = schema.leases
    with writing(engine).begin() as connection:
        moment, until = _times(connection, now, ttl_s)
        values = {"holder": holder, "until": until}
        statement = insert_into(connection, table).values(name=name, **values)
        free = sa.or_(table.c.until <= moment, table.c.holder == holder)
        connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values, where=free))
        return connection.scalar(sa.select(table.c.holder).where(table.c.name == name)) == holder


def lapsed(connection: sa.Connection) -> sa.ColumnElement[bool]:
    """Whether a lease's time is up, by the database's clock."""
    is_over: sa.ColumnElement[bool] = schema.leases.c.until <= _times(connection, None, 0.0)[0]
    return is_over


def _times(connection: sa.Connection, now: datetime | None, ttl_s: float) -> tuple[Any, Any]:
    """Now, and when the lease lapses, as SQL takes them."""
    if now is not None:
        return now, now + timedelta(seconds=ttl_s)
    if connection.dialect.name == "postgresql":
        # Not now(): that is when the transaction began, which may have waited for another's.
        return sa.func.clock_timestamp(), sa.func.clock_timestamp() + sa.literal(timedelta(seconds=ttl_s), sa.Interval)
    moment = sa.literal_column(_SQLITE_NOW, sa.BigInteger)
    return moment, moment + sa.literal(round(ttl_s * 1e6), sa.BigInteger)


def release(engine: sa.Engine, name: str, holder: str) -> None:
    """Give a lease back, if it is ours."""
    table = schema.leases
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(table).where(table.c.name == name, table.c.holder == holder))


FAULTS = "faults"  # grave incidents are new or have grown
VERDICTS = "verdicts"  # verdicts are new or have changed, or what came in was weighed and changed none
TOPOLOGY = "topology"  # a cable, a name of a device, or what nodes share is another
HINTS = "hints"  # a person, or what a person set, has changed what is to be asked of schedulers
_TABLE = schema.marks


def move_mark(connection: sa.Connection, name: str) -> None:
    """Move a mark on; whoever else moves it waits for the end of this transaction, so call it late."""
    statement = insert_into(connection, _TABLE).values(name=name, number=1)
    grown = statement.on_conflict_do_update(index_elements=["name"], set_={"number": _TABLE.c.number + 1})
    connection.execute(grown)


def read_marks(connection: sa.Connection) -> Mapping[str, int]:
    """Every mark that was ever moved."""
    return {row.name: row.number for row in connection.execute(sa.select(_TABLE.c.name, _TABLE.c.number))}

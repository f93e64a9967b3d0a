"""Retention: what is older than a moment goes, a day at a time, so that no transaction is long.

Outages, jobs, incidents, hints and their audit stay: they are small, and labels and ledgers rest on them.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from store import schema
from store.database import writing

PRUNED = (schema.events, schema.telemetry, schema.scores)
_STEP = timedelta(days=1)


def prune(engine: sa.Engine, before: datetime) -> dict[str, int]:
    """Delete events, roll-ups and scores of before a moment; returns how many of each table went."""
    return {f"{table.name}": _prune_table(engine, table, before) for table in PRUNED}


def _prune_table(engine: sa.Engine, table: sa.Table, before: datetime) -> int:
    gone = 0
    while True:
        with writing(engine).begin() as connection:
            oldest = connection.scalar(sa.select(sa.func.min(table.c.time, type_=schema.UtcTime())))
            if oldest is None or oldest >= before:
                return gone
            end = min(before, oldest + _STEP)
            gone += connection.execute(sa.delete(table).where(table.c.time < end)).rowcount

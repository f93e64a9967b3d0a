"""On PostgreSQL the large tables are a table a day; what lies outside the days that are kept apart has one of its own.

    ensure_days(engine, {date(2025, 3, 1)})     # before rows of that day are written

SQLite has one table each: every call here does nothing there.
"""

from collections.abc import Iterable
from datetime import date, timedelta

import sqlalchemy as sa

DIVIDED = ("events", "telemetry", "scores")


def create_default(connection: sa.Connection, table: str) -> None:
    """The partition of rows that no day's own takes."""
    connection.execute(sa.text(f"CREATE TABLE {table}_other PARTITION OF {table} DEFAULT"))


def ensure_days(engine: sa.Engine, days: Iterable[date], tables: Iterable[str] = DIVIDED) -> None:
    """Create the partitions of days that have none."""
    if engine.dialect.name != "postgresql":
        return
    with engine.begin() as connection:
        for day in sorted(set(days)):
            for table in tables:
                connection.execute(
                    sa.text(
                        f"CREATE TABLE IF NOT EXISTS {table}_p{day:%Y%m%d} PARTITION OF {table} "
                        f"FOR VALUES FROM ('{day}T00:00:00Z') TO ('{day + timedelta(days=1)}T00:00:00Z')"
                    )
                )

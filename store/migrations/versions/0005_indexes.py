"""The indexes that reads need, chosen by EXPLAIN: docs/decisions/2026-11-21-indexes-by-explain.md.

On PostgreSQL each is made beside the running server, day by day; it may be cut off at any point and be run again.
"""

from functools import partial

import sqlalchemy as sa
from alembic import op

from store.database.partitions import TRIES, build_index, with_lock_timeout

revision = "0005"
down_revision = "0004"

_LONG = {"postgresql": "\"end\" - start > interval '1 hour'", "sqlite": '"end" - start > 3600000000'}
_NAMED = "run IS NOT NULL"
# Name, table, columns, and of which rows.
_NEW = (
    ("ix_events_time", "events", "time", ""),
    ("ix_events_named_run", "events", "run, time", _NAMED),
    ("ix_incidents_end", "incidents", '"end"', ""),
    ("ix_incidents_severity_start", "incidents", "severity, start", ""),
    ("ix_incidents_long", "incidents", '"end"', "long"),
    ("ix_audit_subject_seq", "audit", "subject, seq", ""),
)
_OLD = {"ix_events_time_id": "events (time, id)", "ix_events_run_time": "events (run, time)"}


def upgrade() -> None:
    """Make the new ones, then drop those that they replace."""
    if op.get_bind().dialect.name != "postgresql":
        for name, table, columns, where in _NEW:
            op.execute(f"CREATE INDEX {name} ON {table} ({columns}){_where(where, 'sqlite')}")
        for name in _OLD:
            op.execute(f"DROP INDEX {name}")
        return
    with op.get_context().autocommit_block():
        engine = op.get_bind().engine
        for name, table, columns, where in _NEW:
            build_index(engine, name, table, f"({columns}){_where(where, 'postgresql')}")
        for name in _OLD:
            with_lock_timeout(engine, partial(_run, statement=f"DROP INDEX IF EXISTS {name}"), TRIES)


def downgrade() -> None:
    """The indexes of before; on PostgreSQL writers wait meanwhile."""
    for name, what in _OLD.items():
        op.execute(f"CREATE INDEX {name} ON {what}")
    for name, *_what in _NEW:
        op.execute(f"DROP INDEX {name}")


def _where(where: str, dialect: str) -> str:
    return f" WHERE {_LONG[dialect] if where == 'long' else where}" if where else ""


def _run(connection: sa.Connection, statement: str) -> None:
    connection.execute(sa.text(statement))

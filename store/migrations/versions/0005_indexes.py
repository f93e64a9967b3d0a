"""The indexes that reads need, chosen by EXPLAIN: docs/decisions/2026-11-21-indexes-by-explain.md.

On PostgreSQL each is made beside the running server, day by day; it may be cut off at any point and be run again.
"""

from functools import partial

import sqlalchemy as sa
from alembic import op

from store.brief import briefly

revision = "0005"
down_revision = "0004"

_TRIES = 600
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
            _build(engine, name, table, f"({columns}){_where(where, 'postgresql')}")
        for name in _OLD:
            briefly(engine, partial(_run, statement=f"DROP INDEX IF EXISTS {name}"), _TRIES)


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


def _build(engine: sa.Engine, name: str, table: str, what: str) -> None:
    """One index: of a divided table the whole's first, then each part's, which joins it."""
    with engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        parts = connection.scalars(
            sa.text(
                "SELECT relid::regclass::text FROM pg_partition_tree(to_regclass(:table)) WHERE isleaf AND level > 0"
            ),
            {"table": table},
        ).all()
        if not parts:
            _build_part(connection, name, table, what)
            return
        briefly(engine, partial(_run, statement=f"CREATE INDEX IF NOT EXISTS {name} ON ONLY {table} {what}"), _TRIES)
        for part in parts:
            if not connection.scalar(sa.text(_HAS), {"part": part, "whole": name}):
                own = f"{part}_{name.removeprefix(f'ix_{table}_')}"
                _build_part(connection, own, part, what)
                briefly(engine, partial(_run, statement=f"ALTER INDEX {name} ATTACH PARTITION {own}"), _TRIES)


# A part that was made meanwhile has its index already.
_HAS = """SELECT EXISTS (SELECT FROM pg_inherits JOIN pg_index ON indexrelid = inhrelid
          WHERE inhparent = to_regclass(:whole) AND indrelid = to_regclass(:part))"""


def _build_part(connection: sa.Connection, name: str, table: str, what: str) -> None:
    """An index made while the table is written; one that was cut off is made anew."""
    valid = connection.scalar(
        sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"), {"name": name}
    )
    if valid is False:
        connection.execute(sa.text(f"DROP INDEX CONCURRENTLY {name}"))
    if not valid:
        connection.execute(sa.text(f"CREATE INDEX CONCURRENTLY {name} ON {table} {what}"))

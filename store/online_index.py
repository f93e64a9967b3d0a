"""An index made beside a running server on PostgreSQL: it may be cut off at any point and be run again."""

from functools import partial

import sqlalchemy as sa

from store.brief import briefly

TRIES = 600


def build_index(engine: sa.Engine, name: str, table: str, what: str) -> None:
    """Make one index on PostgreSQL: of a divided table the whole's first, then each part's, which joins it.

    Args:
        what: method, columns and condition, as they follow the table's name.

    Raises:
        BusyError: a lock was not to be had in TRIES tries.
    """
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
        briefly(engine, partial(_run, statement=f"CREATE INDEX IF NOT EXISTS {name} ON ONLY {table} {what}"), TRIES)
        for part in parts:
            if not connection.scalar(sa.text(_HAS), {"part": part, "whole": name}):
                own = f"{part}_{name.removeprefix(f'ix_{table}_')}"
                _build_part(connection, own, part, what)
                briefly(engine, partial(_run, statement=f"ALTER INDEX {name} ATTACH PARTITION {own}"), TRIES)


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


def _run(connection: sa.Connection, statement: str) -> None:
    connection.execute(sa.text(statement))

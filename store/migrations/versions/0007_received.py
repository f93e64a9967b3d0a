"""An index of when events were received, so that what is new is found without a look at what is old.

Rows are stored in the order in which they come: a block range index says it in a few pages, and costs writers nothing.
SQLite numbers its rows as they come, and needs none.
"""

from alembic import op

from store.database.partitions import build_index

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make it beside the running server."""
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            what = "USING brin (received) WITH (pages_per_range = 16, autosummarize = on)"
            build_index(op.get_bind().engine, "ix_events_received", "events", what)


def downgrade() -> None:
    """Without it, every new scoring reads 28 days."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP INDEX ix_events_received")

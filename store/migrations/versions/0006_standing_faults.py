"""Faults that a gauge still shows, and the word of a person who lets such a node go."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create them."""
    op.add_column("incidents", sa.Column("shown", UtcTime))
    shown = sa.text("shown IS NOT NULL")
    op.create_index("ix_incidents_shown", "incidents", ["shown"], postgresql_where=shown, sqlite_where=shown)
    op.create_table(
        "node_releases",
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("time", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_node_releases"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("node_releases")
    op.drop_index("ix_incidents_shown", "incidents")
    op.drop_column("incidents", "shown")

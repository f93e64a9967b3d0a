"""Nodes whose telemetry came late."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "late_telemetry",
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("received", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_late_telemetry"),
    )
    op.create_index("ix_late_telemetry_received", "late_telemetry", ["received"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("late_telemetry")

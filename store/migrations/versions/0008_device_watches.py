"""What is known of each node whose samples a collector sends."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "device_watches",
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("state", sa.LargeBinary),
        sa.PrimaryKeyConstraint("node", name="pk_device_watches"),
    )
    op.create_index("ix_device_watches_received", "device_watches", ["received"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("device_watches")

"""What people did about incidents and verdicts: acknowledged, noted, silenced, closed."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "thread_entries",
        sa.Column("seq", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("node", sa.Text),
        sa.Column("part", sa.Text, nullable=False),
        sa.Column("moment", UtcTime, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("until", UtcTime),
        sa.Column("severity", sa.Text),
        sa.Column("last", UtcTime),
        sa.Column("named", sa.Text, nullable=False),
        sa.Column("extent", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_thread_entries"),
    )
    op.create_index("ix_thread_entries_subject_seq", "thread_entries", ["subject", "seq"])
    op.create_index("ix_thread_entries_node_moment", "thread_entries", ["node", "moment"])
    op.create_index("ix_thread_entries_time", "thread_entries", ["time"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("thread_entries")

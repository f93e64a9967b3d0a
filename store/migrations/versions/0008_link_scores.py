"""Scores of links."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "link_scores",
        sa.Column("link", sa.Text, primary_key=True),
        sa.Column("horizon_h", sa.Integer, primary_key=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("score", sa.Float, nullable=False),
        sa.Column("ends", sa.JSON, nullable=False),
        sa.Column("reasons", sa.JSON, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
    )
    op.create_index("ix_link_scores_horizon_h_score", "link_scores", ["horizon_h", "score"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("link_scores")

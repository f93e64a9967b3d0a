"""Marks: numbers that grow with news, for processes that wait for it."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "marks",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("marks")

"""The site's rules, versioned."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "rules",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )

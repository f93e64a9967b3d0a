"""Runs' logs as their ledgers need them, and the lines that are to go into them."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the tables. What was received before is read from the log itself."""
    op.create_table(
        "folded_logs",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("folded", sa.LargeBinary, nullable=False),
    )
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "log_news",
        sa.Column("seq", number, primary_key=True, autoincrement=True),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("lines", sa.LargeBinary),
    )
    op.create_index("ix_log_news_run_seq", "log_news", ["run", "seq"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("log_news")
    op.drop_table("folded_logs")

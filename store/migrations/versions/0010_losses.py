"""Interruptions with what they are put down to, and runs' days by bucket."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the tables; the ledgers' loop fills them as it makes each ledger anew."""
    op.create_table(
        "interruptions",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("code", "node", "device", "leaf", "driver", "incident")),
        sa.Column("lost_work_ms", sa.BigInteger, nullable=False),
        sa.Column("restart_ms", sa.BigInteger, nullable=False),
        sa.Column("lost_gpu_ms", sa.BigInteger),
    )
    op.create_index("ix_interruptions_time", "interruptions", ["time"])
    op.create_table(
        "run_days",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("day", UtcTime, primary_key=True),
        sa.Column("bucket", sa.Text, primary_key=True),
        sa.Column("wall_ms", sa.BigInteger, nullable=False),
        sa.Column("gpu_ms", sa.BigInteger),
    )
    op.create_index("ix_run_days_day", "run_days", ["day"])


def downgrade() -> None:
    """Drop them: they are made from the ledgers."""
    op.drop_table("run_days")
    op.drop_table("interruptions")

"""The life of a hint: what each scheduler holds for it, trips of the breaker, the kill switch, what came of it."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the columns and tables; hints of before concern no job and name no policy."""
    op.add_column("nodes", sa.Column("nvlink_domain", sa.Text))
    op.add_column("hints", sa.Column("job", sa.Text))
    op.add_column("hints", sa.Column("policy", sa.Text))
    op.create_table(
        "placements",
        sa.Column("hint", sa.Text, primary_key=True),
        sa.Column("scheduler", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("node", "action", "state")),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", UtcTime, nullable=False),
        sa.Column("asked", UtcTime),
        sa.Column("observed", UtcTime),
        sa.Column("detail", sa.Text),
    )
    op.create_index("ix_placements_node", "placements", ["node"])
    op.create_index("ix_placements_state_due", "placements", ["state", "due"])
    op.create_table(
        "deliveries",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("delivery", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("scheduler", sa.Text, nullable=False),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("ix_deliveries_hint_seq", "deliveries", ["hint", "seq"])
    op.create_table(
        "trips",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", UtcTime, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "name", "why")),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("reset", UtcTime),
        sa.Column("reset_by", sa.Text),
        sa.Column("backlog", sa.Text),
    )
    op.create_table(
        "switches",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", UtcTime, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("actor", "stop", "reason")),
    )
    op.create_table(
        "policies",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "validations",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("hint", "node", "command")),
        sa.Column("started", UtcTime, nullable=False),
        sa.Column("ended", UtcTime),
        sa.Column("passed", sa.Boolean),
        sa.Column("exit_code", sa.Integer),
        sa.Column("output", sa.Text, nullable=False),
    )
    op.create_index("ix_validations_hint_seq", "validations", ["hint", "seq"])
    op.create_table(
        "hint_outcomes",
        sa.Column("hint", sa.Text, primary_key=True),
        sa.Column("judged", UtcTime, nullable=False),
        sa.Column("right", sa.Boolean, nullable=False),
        sa.Column("outage_start", UtcTime),
        sa.Column("lead_s", sa.Float),
        sa.Column("held_gpu_h", sa.Float),
        sa.Column("saved_gpu_h", sa.Float),
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("hint_outcomes", "validations", "policies", "switches", "trips", "deliveries", "placements"):
        op.drop_table(table)
    op.drop_column("hints", "policy")
    op.drop_column("hints", "job")
    op.drop_column("nodes", "nvlink_domain")

"""The first schema.

The tables stand here as they were on that day: later changes of `store/tables/schema.py` come as later revisions.
"""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("node", sa.Text),
        sa.Column("run", sa.Text),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("code", sa.BigInteger),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("device", sa.JSON, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("attributes", sa.JSON, nullable=False),
        sa.Column("file", sa.Text),
        sa.Column("line", sa.BigInteger),
    )
    op.create_index("ix_events_kind_time", "events", ["kind", "time"])
    op.create_index("ix_events_node_time", "events", ["node", "time"])
    op.create_index("ix_events_run_time", "events", ["run", "time"])
    op.create_index("ix_events_time_id", "events", ["time", "id"])
    op.create_table(
        "hints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("created", UtcTime, nullable=False),
        sa.Column("valid_until", UtcTime, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
    )
    op.create_index("ix_hints_created_id", "hints", ["created", "id"])
    op.create_index("ix_hints_node_state", "hints", ["node", "state"])
    op.create_table(
        "incidents",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("node", sa.Text),
        sa.Column("start", UtcTime, nullable=False),
        sa.Column("end", UtcTime, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("code", sa.BigInteger),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("device", sa.JSON, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("kinds", sa.JSON, nullable=False),
        sa.Column("blast_radius", sa.Integer),
    )
    op.create_index("ix_incidents_node_end", "incidents", ["node", "end"])
    op.create_index("ix_incidents_start_id", "incidents", ["start", "id"])
    op.create_table(
        "ingested",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("sha256", sa.Text, primary_key=True),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False),
        sa.Column("done", UtcTime, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Text, primary_key=True),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submit", UtcTime),
        sa.Column("start", UtcTime),
        sa.Column("end", UtcTime),
        sa.Column("nodes", sa.Integer),
        sa.Column("node_list", sa.Text, nullable=False),
        sa.Column("exit_code", sa.Text),
    )
    op.create_index("ix_jobs_run_start", "jobs", ["run", "start"])
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("until", UtcTime, nullable=False),
    )
    op.create_table(
        "links",
        sa.Column("switch", sa.Text, primary_key=True),
        sa.Column("port", sa.Integer, primary_key=True),
        sa.Column("peer", sa.Text, nullable=False),
        sa.Column("peer_port", sa.Integer),
        sa.Column("peer_type", sa.Text, nullable=False),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created", UtcTime, nullable=False),
        sa.Column("trained_until", UtcTime, nullable=False),
        sa.Column("horizon_h", sa.Integer, nullable=False),
        sa.Column("features", sa.JSON, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("rack", sa.Text),
        sa.Column("leaf", sa.Text),
        sa.Column("gpu_model", sa.Text),
        sa.Column("gpus", sa.Integer),
        sa.Column("driver", sa.Text),
        sa.Column("in_service_since", UtcTime),
        sa.Column("in_service_until", UtcTime),
        sa.Column("last_seen", UtcTime),
    )
    op.create_table(
        "outages",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("start", UtcTime, primary_key=True),
        sa.Column("end", UtcTime),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("user", sa.Text),
        sa.Column("planned", sa.Boolean, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
    )
    op.create_index("ix_outages_start", "outages", ["start"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("scheduler", sa.Text, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", UtcTime, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("last_error", sa.Text),
    )
    op.create_index("ix_outbox_state_due", "outbox", ["state", "due"])
    op.create_table(
        "scores",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("horizon_h", sa.Integer, primary_key=True),
        sa.Column("time", UtcTime, primary_key=True),
        sa.Column("score", sa.Float, nullable=False),
        sa.Column("reasons", sa.JSON, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
    )
    op.create_index("ix_scores_horizon_h_time", "scores", ["horizon_h", "time"])
    op.create_table(
        "telemetry",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("time", UtcTime, primary_key=True),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("gpus_seen", sa.Integer, nullable=False),
        sa.Column("gpu_temp_mean_c", sa.Float),
        sa.Column("gpu_temp_max_c", sa.Float),
        sa.Column("gpu_temp_spread_c", sa.Float),
        sa.Column("memory_temp_max_c", sa.Float),
        sa.Column("power_mean_w", sa.Float),
        sa.Column("power_max_w", sa.Float),
        sa.Column("gpu_util_mean", sa.Float),
        sa.Column("sm_clock_min_mhz", sa.Float),
    )
    op.create_index("ix_telemetry_time", "telemetry", ["time"])


def downgrade() -> None:
    """Drop every table."""
    for table in (
        "telemetry",
        "scores",
        "outbox",
        "outages",
        "nodes",
        "models",
        "links",
        "leases",
        "jobs",
        "ingested",
        "incidents",
        "hints",
        "events",
        "audit",
    ):
        op.drop_table(table)

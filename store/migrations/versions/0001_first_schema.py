"""The first schema.

The tables stand here as they were on that day: later changes of `store/tables/schema.py` come as later revisions.
On PostgreSQL the large tables are a table a day; a new database has the table of all other days alone.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0001"
down_revision = None

_TABLES = sa.MetaData(naming_convention={"pk": "pk_%(table_name)s"})
_BY_DAY = ("events", "scores", "telemetry")
# Which rows the partial indexes hold.
_NAMED: dict[str, Any] = dict.fromkeys(("postgresql_where", "sqlite_where"), sa.text("run IS NOT NULL"))
_IN_FORCE: dict[str, Any] = dict.fromkeys(("postgresql_where", "sqlite_where"), sa.text("reset IS NULL"))
_LONG: dict[str, Any] = {
    "postgresql_where": sa.text("\"end\" - start > interval '1 hour'"),
    "sqlite_where": sa.text('"end" - start > 3600000000'),
}
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

sa.Table(
    "audit",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Index("ix_audit_subject_seq", "subject", "seq"),
)
sa.Table(
    "deliveries",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("delivery", sa.Text, nullable=False),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("scheduler", sa.Text, nullable=False),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("duration_s", sa.Float, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("ix_deliveries_hint_seq", "hint", "seq"),
)
sa.Table(
    "event_days",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("day", UtcTime, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("code", sa.BigInteger, primary_key=True),
    sa.Column("severity", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Index("ix_event_days_day", "day"),
)
sa.Table(
    "events",
    _TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),
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
    sa.Index("ix_events_kind_time", "kind", "time"),
    sa.Index("ix_events_named_run", "run", "time", **_NAMED),
    sa.Index("ix_events_node_time", "node", "time"),
    sa.Index(
        "ix_events_received",
        "received",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 16, "autosummarize": "on"},
    ).ddl_if(dialect="postgresql"),
    sa.Index("ix_events_time", "time"),
    postgresql_partition_by="RANGE (time)",
)
sa.Table(
    "folded_logs",
    _TABLES,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("folded", sa.LargeBinary, nullable=False),
)
sa.Table(
    "hint_outcomes",
    _TABLES,
    sa.Column("hint", sa.Text, primary_key=True),
    sa.Column("judged", UtcTime, nullable=False),
    sa.Column("right", sa.Boolean, nullable=False),
    sa.Column("outage_start", UtcTime),
    sa.Column("lead_s", sa.Float),
    sa.Column("held_gpu_h", sa.Float),
    sa.Column("saved_gpu_h", sa.Float),
)
sa.Table(
    "hints",
    _TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("created", UtcTime, nullable=False),
    sa.Column("valid_until", UtcTime, nullable=False),
    sa.Column("evidence", sa.JSON, nullable=False),
    sa.Column("job", sa.Text),
    sa.Column("policy", sa.Text),
    sa.Index("ix_hints_created_id", "created", "id"),
    sa.Index("ix_hints_node_state", "node", "state"),
    sa.Index("ix_hints_state", "state"),
    sa.Index("ix_hints_valid_until", "valid_until"),
)
sa.Table(
    "incidents",
    _TABLES,
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
    sa.Column("source", sa.Text),
    sa.Column("name", sa.Text),
    sa.Column("heads", sa.Text),
    sa.Index("ix_incidents_end", "end"),
    sa.Index("ix_incidents_long", "end", **_LONG),
    sa.Index("ix_incidents_node_end", "node", "end"),
    sa.Index("ix_incidents_severity_start", "severity", "start"),
    sa.Index("ix_incidents_start_id", "start", "id"),
)
sa.Table(
    "ingested",
    _TABLES,
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("skipped", sa.BigInteger, nullable=False),
    sa.Column("done", UtcTime, nullable=False),
)
sa.Table(
    "intake",
    _TABLES,
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("events", sa.LargeBinary, nullable=False),
    sa.Column("error", sa.Text),
)
sa.Table(
    "interruptions",
    _TABLES,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("code", sa.Text),
    sa.Column("node", sa.Text),
    sa.Column("device", sa.Text),
    sa.Column("leaf", sa.Text),
    sa.Column("driver", sa.Text),
    sa.Column("incident", sa.Text),
    sa.Column("lost_work_ms", sa.BigInteger, nullable=False),
    sa.Column("restart_ms", sa.BigInteger, nullable=False),
    sa.Column("lost_gpu_ms", sa.BigInteger),
    sa.Index("ix_interruptions_time", "time"),
)
sa.Table(
    "jobs",
    _TABLES,
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
    sa.Index("ix_jobs_run_start", "run", "start"),
)
sa.Table(
    "keys",
    _TABLES,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
)
sa.Table(
    "leases",
    _TABLES,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("until", UtcTime, nullable=False),
)
sa.Table(
    "ledgers",
    _TABLES,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("computed", UtcTime, nullable=False),
    sa.Column("until", UtcTime, nullable=False),
    sa.Column("ledger", sa.JSON, nullable=False),
)
sa.Table(
    "link_scores",
    _TABLES,
    sa.Column("link", sa.Text, primary_key=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("score", sa.Float, nullable=False),
    sa.Column("ends", sa.JSON, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Index("ix_link_scores_horizon_h_score", "horizon_h", "score"),
)
sa.Table(
    "links",
    _TABLES,
    sa.Column("switch", sa.Text, primary_key=True),
    sa.Column("port", sa.Integer, primary_key=True),
    sa.Column("peer", sa.Text, nullable=False),
    sa.Column("peer_port", sa.Integer),
    sa.Column("peer_type", sa.Text, nullable=False),
)
sa.Table(
    "log_news",
    _TABLES,
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("lines", sa.LargeBinary),
    sa.Index("ix_log_news_run_seq", "run", "seq"),
)
sa.Table(
    "marks",
    _TABLES,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)
sa.Table(
    "models",
    _TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("created", UtcTime, nullable=False),
    sa.Column("trained_until", UtcTime, nullable=False),
    sa.Column("horizon_h", sa.Integer, nullable=False),
    sa.Column("features", sa.JSON, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("blob", sa.LargeBinary, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="gbt"),
    sa.Column("role", sa.Text, nullable=False, server_default="champion"),
    sa.Column("data", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("code", sa.Text, nullable=False, server_default=""),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("by", sa.Text, nullable=False, server_default=""),
    sa.Column("since", UtcTime),
    sa.Column("profile", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("checks", sa.JSON, nullable=False, server_default="{}"),
)
sa.Table(
    "nodes",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("rack", sa.Text),
    sa.Column("leaf", sa.Text),
    sa.Column("gpu_model", sa.Text),
    sa.Column("gpus", sa.Integer),
    sa.Column("driver", sa.Text),
    sa.Column("in_service_since", UtcTime),
    sa.Column("in_service_until", UtcTime),
    sa.Column("last_seen", UtcTime),
    sa.Column("nvlink_domain", sa.Text),
)
sa.Table(
    "outages",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("start", UtcTime, primary_key=True),
    sa.Column("end", UtcTime),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("user", sa.Text),
    sa.Column("planned", sa.Boolean, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Index("ix_outages_start", "start"),
)
sa.Table(
    "outbox",
    _TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("scheduler", sa.Text, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", UtcTime, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Index("ix_outbox_hint", "hint"),
    sa.Index("ix_outbox_state_due", "state", "due"),
)
sa.Table(
    "placements",
    _TABLES,
    sa.Column("hint", sa.Text, primary_key=True),
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", UtcTime, nullable=False),
    sa.Column("asked", UtcTime),
    sa.Column("observed", UtcTime),
    sa.Column("detail", sa.Text),
    sa.Index("ix_placements_node", "node"),
    sa.Index("ix_placements_state_due", "state", "due"),
)
sa.Table(
    "policies",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)
sa.Table(
    "rules",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)
sa.Table(
    "run_days",
    _TABLES,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("day", UtcTime, primary_key=True),
    sa.Column("bucket", sa.Text, primary_key=True),
    sa.Column("wall_ms", sa.BigInteger, nullable=False),
    sa.Column("gpu_ms", sa.BigInteger),
    sa.Index("ix_run_days_day", "day"),
)
sa.Table(
    "scores",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),
    sa.Column("score", sa.Float, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Index("ix_scores_horizon_h_time", "horizon_h", "time"),
    postgresql_partition_by="RANGE (time)",
)
sa.Table(
    "scorings",
    _TABLES,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),
    sa.Column("horizon_h", sa.Integer, nullable=False),
    sa.Column("scores", sa.LargeBinary, nullable=False),
    sa.Column("spread", sa.LargeBinary),
    sa.Index("ix_scorings_horizon_h_time", "horizon_h", "time"),
)
sa.Table(
    "sidecars",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    sa.Column("troubled", sa.Boolean, nullable=False),
    sa.Column("report", sa.JSON, nullable=False),
    sa.Index("ix_sidecars_received", "received"),
)
sa.Table(
    "switches",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("stop", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
sa.Table(
    "telemetry",
    _TABLES,
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
    sa.Column("devices", sa.JSON(none_as_null=True)),
    sa.Index("ix_telemetry_time", "time"),
    postgresql_partition_by="RANGE (time)",
)
sa.Table(
    "telemetry_days",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("day", UtcTime, primary_key=True),
    sa.Column("hours", sa.Integer, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("gpus_seen", sa.Integer, nullable=False),
    sa.Column("gpu_temp_mean_c", sa.Float),
    sa.Column("gpu_temp_max_c", sa.Float),
    sa.Column("gpu_temp_spread_c", sa.Float),
    sa.Column("memory_temp_max_c", sa.Float),
    sa.Column("power_mean_w", sa.Float),
    sa.Column("power_max_w", sa.Float),
    sa.Column("gpu_util_mean", sa.Float),
    sa.Column("sm_clock_min_mhz", sa.Float),
    sa.Index("ix_telemetry_days_day", "day"),
)
sa.Table(
    "trips",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("reset", UtcTime),
    sa.Column("reset_by", sa.Text),
    sa.Column("backlog", sa.Text),
    sa.Index("ix_trips_in_force", "kind", "name", unique=True, **_IN_FORCE),
)
sa.Table(
    "validations",
    _TABLES,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    sa.Column("ended", UtcTime),
    sa.Column("passed", sa.Boolean),
    sa.Column("exit_code", sa.Integer),
    sa.Column("output", sa.Text, nullable=False),
    sa.Index("ix_validations_hint_seq", "hint", "seq"),
)


def upgrade() -> None:
    """Create every table."""
    connection = op.get_bind()
    _TABLES.create_all(connection)
    if connection.dialect.name == "postgresql":
        for table in _BY_DAY:
            op.execute(f"CREATE TABLE {table}_other PARTITION OF {table} DEFAULT")


def downgrade() -> None:
    """Drop every table."""
    _TABLES.drop_all(op.get_bind())

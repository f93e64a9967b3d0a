"""The SQL schema, on one page but for hints, models, ledgers and losses (`*_tables.py`), on any database."""

import sqlalchemy as sa

from store.hint_tables import audit as audit
from store.hint_tables import deliveries as deliveries
from store.hint_tables import hint_outcomes as hint_outcomes
from store.hint_tables import hints as hints
from store.hint_tables import marks as marks
from store.hint_tables import outbox as outbox
from store.hint_tables import placements as placements
from store.hint_tables import policies as policies
from store.hint_tables import switches as switches
from store.hint_tables import trips as trips
from store.hint_tables import validations as validations
from store.ledger_tables import folded_logs as folded_logs
from store.ledger_tables import ledgers as ledgers
from store.ledger_tables import log_news as log_news
from store.loss_tables import interruptions as interruptions
from store.loss_tables import run_days as run_days
from store.metadata import metadata as metadata
from store.model_tables import keys as keys
from store.model_tables import link_scores as link_scores
from store.model_tables import models as models
from store.model_tables import scorings as scorings
from store.partial import LONG, NAMED
from store.utc_time import UtcTime as UtcTime

# On PostgreSQL the large tables are a table a day: `store/partitions.py`.
BY_DAY = "RANGE (time)"

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("rack", sa.Text),
    sa.Column("leaf", sa.Text),
    sa.Column("gpu_model", sa.Text),
    sa.Column("gpus", sa.Integer),
    sa.Column("driver", sa.Text),
    sa.Column("in_service_since", UtcTime),
    sa.Column("in_service_until", UtcTime),
    sa.Column("last_seen", UtcTime),  # the newest event or roll-up of the node
    sa.Column("nvlink_domain", sa.Text),  # nodes that share NVLink switches, as an NVL72's do
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # When it happened; when it was received, where the source bears no time.
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
    sa.Index(None, "time"),
    sa.Index(None, "node", "time"),
    sa.Index(None, "kind", "time"),
    sa.Index("ix_events_named_run", "run", "time", postgresql_where=NAMED, sqlite_where=NAMED),
    sa.Index(
        "ix_events_received",
        "received",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 16, "autosummarize": "on"},
    ).ddl_if(dialect="postgresql"),
    postgresql_partition_by=BY_DAY,
)

outages = sa.Table(
    "outages",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("start", UtcTime, primary_key=True),
    sa.Column("end", UtcTime),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("user", sa.Text),
    sa.Column("planned", sa.Boolean, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Index(None, "start"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("attempt", sa.Text, primary_key=True),  # its submit (or start) in RFC 3339: a requeued job keeps its id
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("submit", UtcTime),
    sa.Column("start", UtcTime),
    sa.Column("end", UtcTime),
    sa.Column("nodes", sa.Integer),
    sa.Column("node_list", sa.Text, nullable=False),
    sa.Column("exit_code", sa.Text),
    sa.Index(None, "run", "start"),
)

telemetry = sa.Table(
    "telemetry",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),  # start of the hour
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
    sa.Column("devices", sa.JSON(none_as_null=True)),  # of each device and measure: min, max, mean, last, changes
    sa.Index(None, "time"),
    postgresql_partition_by=BY_DAY,
)

links = sa.Table(  # topology: which port is cabled to which
    "links",
    metadata,
    sa.Column("switch", sa.Text, primary_key=True),
    sa.Column("port", sa.Integer, primary_key=True),
    sa.Column("peer", sa.Text, nullable=False),  # host or switch name
    sa.Column("peer_port", sa.Integer),
    sa.Column("peer_type", sa.Text, nullable=False),  # hca or switch
)

incidents = sa.Table(
    "incidents",
    metadata,
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
    sa.Column("source", sa.Text),  # who said what names it
    sa.Column("name", sa.Text),  # of the device, where it has one
    # JSON of the events that may come to name it as others join (`diagnosis/fault.py`); null where its own words do.
    sa.Column("heads", sa.Text),
    sa.Index(None, "start", "id"),
    sa.Index(None, "node", "end"),
    sa.Index(None, "end"),
    sa.Index(None, "severity", "start"),
    sa.Index("ix_incidents_long", "end", postgresql_where=LONG["postgresql"], sqlite_where=LONG["sqlite"]),
)

scores = sa.Table(
    "scores",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),
    sa.Column("score", sa.Float, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Index(None, "horizon_h", "time"),
    postgresql_partition_by=BY_DAY,
)

rules = sa.Table(  # the site's rules, a row each time that others came into force; never updated
    "rules",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)

ingested = sa.Table(  # what `foreshock ingest` has taken, so that it resumes
    "ingested",
    metadata,
    sa.Column("path", sa.Text, primary_key=True),  # relative to the archive
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("skipped", sa.BigInteger, nullable=False),
    sa.Column("done", UtcTime, nullable=False),
)

leases = sa.Table(  # who runs a background loop
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("until", UtcTime, nullable=False),
)

intake = sa.Table(  # fault events that no incident counts yet: a row a batch, gone once they are folded
    "intake",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("events", sa.LargeBinary, nullable=False),  # zstd of JSON: what they come to (`diagnosis/fault.py`)
    sa.Column("error", sa.Text),  # why the row was set aside: no incident can be made of it as it is
)

sidecars = sa.Table(  # what each node's sidecar last said of itself
    "sidecars",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("time", UtcTime, nullable=False),  # by the node's own clock
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    sa.Column("troubled", sa.Boolean, nullable=False),  # a source is down or blocked, or something was lost
    sa.Column("report", sa.JSON, nullable=False),
    sa.Index(None, "received"),
)

event_days = sa.Table(  # how many events of a kind a node had on a day: what stays of them when they are pruned
    "event_days",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),  # "" for events that name none
    sa.Column("day", UtcTime, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("code", sa.BigInteger, primary_key=True),  # -1 for none
    sa.Column("severity", sa.Text, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Index(None, "day"),
)

telemetry_days = sa.Table(  # a node's day of telemetry: what stays of its hours when they are pruned
    "telemetry_days",
    metadata,
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
    sa.Index(None, "day"),
)

"""The SQL schema on any database; `store/tables/hint_tables.py` adds the tables of hints and has all metadata."""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata = sa.MetaData(naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"})


# Which rows the partial indexes hold: a query must say the same in the same words for its database to use one.

LIVE = sa.text("revoked IS NULL")  # tokens that nobody has ended
NAMED = sa.text("run IS NOT NULL")  # events of a training run: most events name none
SHOWN = sa.text("shown IS NOT NULL")
# Incidents that lasted long, which are few.
LONG_INCIDENT = timedelta(hours=1)
LONG = {
    "postgresql": sa.text("\"end\" - start > interval '1 hour'"),
    "sqlite": sa.text('"end" - start > 3600000000'),
}


# Moments in SQL: aware, in UTC, exact to the microsecond on both databases.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC moment: timestamptz on PostgreSQL, microseconds since 1970 on SQLite (which has no such type)."""

    impl = sa.BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type on each database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """An aware moment to what the database takes."""
        if value is None or dialect.name == "postgresql":
            return value
        return (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """What the database gives to an aware moment in UTC."""
        if value is None:
            return None
        if dialect.name == "postgresql":
            return value.astimezone(UTC)  # type: ignore[no-any-return]
        return _EPOCH + timedelta(microseconds=value)


models = sa.Table(
    "models",
    metadata,
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

scorings = sa.Table(  # what each model said of every node at some moments: to be judged by what came
    "scorings",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),
    sa.Column("horizon_h", sa.Integer, nullable=False),
    sa.Column("scores", sa.LargeBinary, nullable=False),  # zstd of JSON: {node: score}
    sa.Column("spread", sa.LargeBinary),  # zstd of JSON: {feature: nodes in each part of its profile}
    sa.Index(None, "horizon_h", "time"),
)

keys = sa.Table(  # secrets that every server of the database shares
    "keys",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
)

link_scores = sa.Table(  # each link's newest score; a scoring takes the place of the one before
    "link_scores",
    metadata,
    sa.Column("link", sa.Text, primary_key=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("score", sa.Float, nullable=False),
    sa.Column("ends", sa.JSON, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("node", sa.Text),  # the host at its end; null: between two switches
    sa.Column("own_risk", sa.Float),
    sa.Column("stop_risk", sa.Float),
    sa.Index(None, "horizon_h", "score"),
    sa.Index(None, "horizon_h", "own_risk"),
)


# On PostgreSQL the large tables are a table a day: `store/database/partitions.py`.
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

inventory = sa.Table(  # which nodes there are, by whose word; what a node says of itself is no such word
    "inventory",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    # operator, archive (nodes.csv), topology, scheduler:NAME; a token of exactly one node stands in `tokens`
    sa.Column("known_by", sa.Text, primary_key=True),
    sa.Index(None, "known_by", "node"),
)

tokens = sa.Table(  # those that `foreshock token new` and enrolment gave out; a row is ended, never deleted
    "tokens",
    metadata,
    sa.Column("sha256", sa.Text, primary_key=True),  # of its text, which nobody keeps
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("node", sa.Text, nullable=False),  # pattern of the nodes that it speaks for
    sa.Column("created", UtcTime, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires", UtcTime),
    sa.Column("uses", sa.Integer),  # how many nodes a join token may enrol; null: as many as its pattern names
    sa.Column("used", sa.Integer, nullable=False),
    sa.Column("last_used", UtcTime),
    sa.Column("revoked", UtcTime),
    sa.Column("revoked_by", sa.Text),
    sa.Column("changed", sa.BigInteger, nullable=False),  # counts the changes of all: servers read on from the last
    sa.Index("ix_tokens_live", "name", unique=True, postgresql_where=LIVE, sqlite_where=LIVE),
    sa.Index(None, "changed"),
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
    sa.Column("packed", sa.LargeBinary),  # the same once the day is closed (`packed_hours.py`)
    sa.Index(None, "time"),
    postgresql_partition_by=BY_DAY,
)

packed_days = sa.Table(  # the days whose hours are packed; a day's dictionary unpacks them
    "packed_days",
    metadata,
    sa.Column("day", UtcTime, primary_key=True, autoincrement=False),
    sa.Column("dictionary", sa.LargeBinary, nullable=False),  # of zstd; empty: they are packed without one
    sa.Column("done", UtcTime),  # null: some of them are not packed yet
)

links = sa.Table(  # topology: which port is cabled to which, as it is now (`topology_tables.former_links` was)
    "links",
    metadata,
    sa.Column("switch", sa.Text, primary_key=True),
    sa.Column("port", sa.Integer, primary_key=True),
    sa.Column("peer", sa.Text, nullable=False),  # host or switch name
    sa.Column("peer_port", sa.Integer),
    sa.Column("peer_type", sa.Text, nullable=False),  # hca or switch
    *(sa.Column(name, sa.Text) for name in ("switch_guid", "port_name", "peer_guid", "peer_port_guid", "hca", "rate")),
    *(sa.Column(name, sa.Integer) for name in ("switch_lid", "peer_lid")),
    sa.Column("since", UtcTime),  # null: as long as anything is known of the port
    sa.Column("known_by", sa.Text),  # the node that told of it; null: the fabric or an operator
    sa.Index(None, "peer"),
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
    # JSON of the events that may come to name it as others join (`diagnosis/incidents/incident.py`); null where its
    # own words do.
    sa.Column("heads", sa.Text),
    sa.Column("link", sa.Integer),  # of the device, where what names it tells one
    sa.Column("domain", sa.Text),  # the NVLink domain that it is of: then one incident stands for several nodes
    sa.Column("nodes", sa.JSON(none_as_null=True)),  # all nodes of the domain that showed it
    sa.Column("parts", sa.Text),  # JSON of what each of them said: it can be told anew when more comes
    sa.Column("shown", UtcTime),  # when a gauge last showed that it stands, long after its own events
    sa.Index(None, "start", "id"),
    sa.Index(None, "node", "end"),
    sa.Index(None, "end"),
    sa.Index(None, "severity", "start"),
    sa.Index("ix_incidents_shown", "shown", postgresql_where=SHOWN, sqlite_where=SHOWN),
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

histories = sa.Table(  # stretches of a Prometheus's history that were taken, so that an import goes on where it was
    "histories",
    metadata,
    sa.Column("source", sa.Text, primary_key=True),  # its address, and what was selected of it
    sa.Column("since", UtcTime, primary_key=True),
    sa.Column("until", UtcTime, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("skipped", sa.BigInteger, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),  # zstd of JSON: what the watch knows at `until`
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
    sa.Column("events", sa.LargeBinary, nullable=False),  # zstd of JSON (`diagnosis/incidents/incident.py`)
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
    sa.Column("unbroken_since", UtcTime),  # since when no heartbeat was long in coming
    sa.Column("interval_s", sa.Float),  # between two heartbeats, as the report says; null: an older server wrote it
    sa.Index(None, "received"),
)

late_telemetry = sa.Table(  # nodes whose roll-ups came long after their hour: who keeps telemetry reads theirs again
    "late_telemetry",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("received", UtcTime, nullable=False),  # when the last of them came
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

audit = sa.Table(  # who asked for what, when, and what came of it; never updated once it is committed
    "audit",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Column("position", sa.BigInteger),  # in the chain (store/database/audit_chain.py), counted from 1
    sa.Column("hash", sa.Text),  # SHA-256 of this row and of the hash of the one before
    sa.Index(None, "subject", "seq"),
    sa.Index(None, "position", unique=True),
)

marks = sa.Table(  # numbers that grow with news, for processes that wait for it
    "marks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
)

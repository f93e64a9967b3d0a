"""The tables of hints, deliveries, holds, stops, validations, outcomes and checks; `metadata` holds every table.

Those of the topology and of verdicts are in it once a database was opened.
"""

import sqlalchemy as sa

from store.tables.schema import UtcTime
from store.tables.schema import metadata as metadata

hints = sa.Table(
    "hints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("created", UtcTime, nullable=False),
    sa.Column("valid_until", UtcTime, nullable=False),
    sa.Column("evidence", sa.JSON, nullable=False),
    sa.Column("job", sa.Text),  # of a hint on a job: checkpoint, requeue, swap
    sa.Column("policy", sa.Text),  # the version that asked for it last
    sa.Index(None, "created", "id"),
    sa.Index(None, "node", "state"),
    sa.Index(None, "state"),  # those that are open are few
    sa.Index(None, "valid_until"),
)


outbox = sa.Table(  # deliveries that are owed: one row per hint and scheduler until it is delivered or expires
    "outbox",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # the webhook-id
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("scheduler", sa.Text, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", UtcTime, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # owed, delivered, failed, expired
    sa.Column("last_error", sa.Text),
    sa.Index(None, "state", "due"),
    sa.Index(None, "hint"),
)

deliveries = sa.Table(  # each attempt at one of them; never updated
    "deliveries",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("delivery", sa.Text, nullable=False),  # the outbox's id
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("scheduler", sa.Text, nullable=False),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),  # delivered, retry, refused, gone
    sa.Column("status", sa.Integer),  # of HTTP
    sa.Column("duration_s", sa.Float, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index(None, "hint", "seq"),
)

placements = sa.Table(  # what a scheduler that is read back holds for a hint
    "placements",
    metadata,
    sa.Column("hint", sa.Text, primary_key=True),
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),  # that it was last brought to
    sa.Column("state", sa.Text, nullable=False),  # asked, confirmed, foreign, undone, absent, refused, released
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", UtcTime, nullable=False),
    sa.Column("asked", UtcTime),
    sa.Column("observed", UtcTime),
    sa.Column("detail", sa.Text),
    sa.Index(None, "node"),
    sa.Index(None, "state", "due"),
)

scheduler_looks = sa.Table(  # over which time a scheduler that is read back was looked at, without a long gap
    "scheduler_looks",
    metadata,
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("seen", UtcTime, nullable=False),
)

scheduler_nodes = sa.Table(  # what it said of each node then; written when that changes
    "scheduler_nodes",
    metadata,
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("is_out", sa.Boolean, nullable=False),  # down, or kept from work by others than us
    sa.Column("up_since", UtcTime),  # it responds; null while it does not
    sa.Column("back", UtcTime),  # when it was last seen to be out no more
    sa.Index(None, "node"),
)

node_releases = sa.Table(  # when a person last let a node go: what its gauges showed by then holds it no more
    "node_releases",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("time", UtcTime, nullable=False),
)

trips = sa.Table(  # of the breaker: one is in force until a person resets it
    "trips",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # leaf, driver, code, cluster ...
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("reset", UtcTime),
    sa.Column("reset_by", sa.Text),
    sa.Column("backlog", sa.Text),  # drop, review
    sa.Index(
        "ix_trips_in_force",
        *("kind", "name"),
        unique=True,
        postgresql_where=sa.text("reset IS NULL"),
        sqlite_where=sa.text("reset IS NULL"),
    ),
)

switches = sa.Table(  # the kill switch as people set it, the newest row counts; never updated
    "switches",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("stop", sa.Text, nullable=False),  # none, holds, all
    sa.Column("reason", sa.Text, nullable=False),
)

policies = sa.Table(  # a row each time that another policy came into force; never updated
    "policies",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)

validations = sa.Table(  # whether a node passed the operator's test before it was to be released
    "validations",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    sa.Column("ended", UtcTime),
    sa.Column("passed", sa.Boolean),
    sa.Column("exit_code", sa.Integer),
    sa.Column("output", sa.Text, nullable=False),  # its last lines
    sa.Index(None, "hint", "seq"),
)

hint_outcomes = sa.Table(  # whether a hint was right, judged once its time is over
    "hint_outcomes",
    metadata,
    sa.Column("hint", sa.Text, primary_key=True),
    sa.Column("judged", UtcTime, nullable=False),
    sa.Column("right", sa.Boolean, nullable=False),
    sa.Column("outage_start", UtcTime),
    sa.Column("lead_s", sa.Float),
    sa.Column("held_gpu_h", sa.Float),  # what it cost, or would have
    sa.Column("saved_gpu_h", sa.Float),  # what it saved, or would have
)


# Cases that wait for what comes.
UNJUDGED = sa.text("outcome IS NULL")

check_cases = sa.Table(  # what a check said of a node: what it says again within seven days is the same case
    "check_cases",
    metadata,
    sa.Column("source", sa.Text, primary_key=True),  # of its events; `model` for the score
    sa.Column("name", sa.Text, primary_key=True),  # kind and code, or what a detector calls it
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("said", UtcTime, primary_key=True),
    sa.Column("last", UtcTime, nullable=False),
    sa.Column("outcome", sa.Text),  # followed, cleared, contradicted, unknown; null: it is too early to tell
    sa.Index(None, "node", "said"),
    sa.Index("ix_check_cases_unjudged", "said", postgresql_where=UNJUDGED, sqlite_where=UNJUDGED),
)

check_records = sa.Table(  # what came of all that a check said within a year, as of the last judgement
    "check_records",
    metadata,
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("said", sa.BigInteger, nullable=False),
    sa.Column("waiting", sa.BigInteger, nullable=False),
    sa.Column("followed", sa.BigInteger, nullable=False),
    sa.Column("cleared", sa.BigInteger, nullable=False),
    sa.Column("contradicted", sa.BigInteger, nullable=False),
    sa.Column("unknown", sa.BigInteger, nullable=False),
    sa.Column("nodes", sa.BigInteger, nullable=False),
    sa.Column("right", sa.Float, nullable=False),  # of the judged, each node counted once by the share of its cases
    sa.Column("wrong", sa.Float, nullable=False),
    sa.Column("precision", sa.Float, nullable=False),
    sa.Column("low", sa.Float, nullable=False),
    sa.Column("high", sa.Float, nullable=False),
    sa.Column("last", UtcTime, nullable=False),
)

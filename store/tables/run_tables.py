"""The tables of runs: their ledgers, the logs these are made of, what ended them and where their days went."""

import sqlalchemy as sa

from store.tables.schema import UtcTime, metadata

ledgers = sa.Table(  # each run's goodput ledger as it was last computed
    "ledgers",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("computed", UtcTime, nullable=False),
    sa.Column("until", UtcTime, nullable=False),  # the newest record that went in
    sa.Column("ledger", sa.JSON, nullable=False),
)

folded_logs = sa.Table(  # a run's log as its ledger needs it: plain stretches are a line (`goodput/log/folded_log.py`)
    "folded_logs",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),  # counts the writes: of two writers the later one gives way
    sa.Column("folded", sa.LargeBinary, nullable=False),  # zstd of JSON
)

log_news = sa.Table(  # lines of runs' logs that no folded log has yet: a row a batch and run, gone once they are in
    "log_news",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("lines", sa.LargeBinary),  # zstd of JSON; null: so many that the log is read anew
    sa.Index(None, "run", "seq"),
)

interruptions = sa.Table(  # each bad end of an attempt, what it is put down to and what it cost
    "interruptions",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),  # in the order of the run
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("code", sa.Text),  # kind, or kind:code, as incidents count them
    sa.Column("node", sa.Text),  # or the switch
    sa.Column("device", sa.Text),
    sa.Column("leaf", sa.Text),
    sa.Column("driver", sa.Text),
    sa.Column("incident", sa.Text),
    sa.Column("lost_work_ms", sa.BigInteger, nullable=False),
    sa.Column("restart_ms", sa.BigInteger, nullable=False),
    sa.Column("lost_gpu_ms", sa.BigInteger),  # null: nobody knows how many GPUs the run had
    sa.Index(None, "time"),
)

run_days = sa.Table(  # what of a run's UTC day went into a bucket
    "run_days",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("day", UtcTime, primary_key=True),
    sa.Column("bucket", sa.Text, primary_key=True),
    sa.Column("wall_ms", sa.BigInteger, nullable=False),
    sa.Column("gpu_ms", sa.BigInteger),
    sa.Index(None, "day"),
)

cluster_days = sa.Table(  # the same of all runs together
    "cluster_days",
    metadata,
    sa.Column("day", UtcTime, primary_key=True),
    sa.Column("bucket", sa.Text, primary_key=True),
    sa.Column("wall_ms", sa.BigInteger, nullable=False),
    sa.Column("gpu_ms", sa.BigInteger, nullable=False),  # of runs whose GPUs are known
    sa.Column("unmeasured_ms", sa.BigInteger, nullable=False),  # wall time of the others
)

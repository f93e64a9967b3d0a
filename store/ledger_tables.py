"""The tables of the runs' ledgers: `store/schema.py` has them with the rest."""

import sqlalchemy as sa

from store.metadata import metadata
from store.utc_time import UtcTime

ledgers = sa.Table(  # each run's goodput ledger as it was last computed
    "ledgers",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("computed", UtcTime, nullable=False),
    sa.Column("until", UtcTime, nullable=False),  # the newest record that went in
    sa.Column("ledger", sa.JSON, nullable=False),
)

folded_logs = sa.Table(  # a run's log as its ledger needs it: plain stretches are one line each (`goodput/log/fold.py`)
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

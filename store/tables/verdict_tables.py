"""The tables of verdicts: what is held now, each change, whom it touches, what waits, and what people did about it."""

import sqlalchemy as sa

from store.tables.schema import UtcTime, metadata

# Verdicts that are held now.
STANDING = sa.text("state IN ('open', 'revised')")

verdicts = sa.Table(  # each cause as it is held now, or as it was when it ended
    "verdicts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("class", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("node", sa.Text),
    sa.Column("state", sa.Text, nullable=False),  # open, revised, explained, closed
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("probability", sa.Float, nullable=False),
    sa.Column("since", UtcTime, nullable=False),  # its first sign
    sa.Column("opened", UtcTime, nullable=False),
    sa.Column("changed", UtcTime, nullable=False),
    sa.Column("ended", UtcTime),
    sa.Column("why", sa.Text),  # it ended
    sa.Column("explained_by", sa.Text),
    sa.Column("document", sa.Text, nullable=False),  # JSON of all the rest (`store/verdicts/verdict_log.py`)
    sa.Index(None, "since", "id"),
    sa.Index(None, "node", "since"),
    sa.Index(None, "changed"),
    sa.Index(None, "ended"),
    sa.Index("ix_verdicts_standing", "id", postgresql_where=STANDING, sqlite_where=STANDING),
)

verdict_revisions = sa.Table(  # each change of a verdict; never updated
    "verdict_revisions",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("what", sa.Text, nullable=False),  # has changed, in words
    sa.Column("probability", sa.Float, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Index(None, "verdict", "seq"),
    sa.Index(None, "time"),
    sqlite_autoincrement=True,  # a number is never given twice: who listens resumes by it
)

verdict_subjects = sa.Table(  # the nodes, runs and incidents that a verdict names
    "verdict_subjects",
    metadata,
    sa.Column("verdict", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),  # node, run, incident
    sa.Column("name", sa.Text, primary_key=True),
    sa.Index(None, "kind", "name", "verdict"),
)

symptom_news = sa.Table(  # events that may be symptoms and that no verdict has weighed yet: a row a batch
    "symptom_news",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("received", UtcTime, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("events", sa.LargeBinary, nullable=False),  # zstd of JSON
    sqlite_autoincrement=True,
)

run_stops = sa.Table(  # the first verdict of each stop of a run, as `foreshock diagnose` names it
    "run_stops",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("end", UtcTime, primary_key=True),  # of the attempt
    sa.Column("made", UtcTime, nullable=False),
    sa.Column("document", sa.Text, nullable=False),  # JSON of the verdict
)

thread_entries = sa.Table(  # what people did about an incident or a verdict; never updated
    "thread_entries",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),  # ack, note, silence, unsilence, repair, validate, close, reopen
    sa.Column("subject", sa.Text, nullable=False),  # the incident's id then, or the verdict's
    sa.Column("node", sa.Text),
    sa.Column("part", sa.Text, nullable=False),  # which of the incidents of one node and time
    sa.Column("moment", UtcTime, nullable=False),  # its start then: an incident that took it in covers it
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("until", UtcTime),  # of a silence
    sa.Column("severity", sa.Text),  # these four: what the person saw
    sa.Column("last", UtcTime),
    sa.Column("named", sa.Text, nullable=False),
    sa.Column("extent", sa.Integer, nullable=False),
    sa.Index(None, "subject", "seq"),
    sa.Index(None, "node", "moment"),
    sa.Index(None, "time"),
)

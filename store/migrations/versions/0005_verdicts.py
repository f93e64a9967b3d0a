"""What verdicts need: verdicts with each change of them, whom they touch, and the events that none has weighed yet."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0005"
down_revision = "0004"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _create_verdicts()


def _create_verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("class", "name")),
        sa.Column("node", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("probability", sa.Float, nullable=False),
        *(sa.Column(name, UtcTime, nullable=False) for name in ("since", "opened", "changed")),
        sa.Column("ended", UtcTime),
        sa.Column("why", sa.Text),
        sa.Column("explained_by", sa.Text),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_verdicts"),
    )
    for columns in (["since", "id"], ["node", "since"], ["changed"], ["ended"]):
        op.create_index(f"ix_verdicts_{'_'.join(columns)}", "verdicts", columns)
    standing = sa.text("state IN ('open', 'revised')")
    op.create_index("ix_verdicts_standing", "verdicts", ["id"], postgresql_where=standing, sqlite_where=standing)
    op.create_table(
        "verdict_revisions",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("time", UtcTime, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("state", "what")),
        sa.Column("probability", sa.Float, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_verdict_revisions_verdict_seq", "verdict_revisions", ["verdict", "seq"])
    op.create_index("ix_verdict_revisions_time", "verdict_revisions", ["time"])
    op.create_table(
        "verdict_subjects",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("verdict", "kind", "name")),
        sa.PrimaryKeyConstraint("verdict", "kind", "name", name="pk_verdict_subjects"),
    )
    op.create_index("ix_verdict_subjects_kind_name_verdict", "verdict_subjects", ["kind", "name", "verdict"])
    op.create_table(
        "symptom_news",
        sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("events", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("symptom_news", "verdict_subjects", "verdict_revisions", "verdicts"):
        op.drop_table(name)

"""What real clusters need: what was taken of a Prometheus's history; an incident's link, and its NVLink domain."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0004"
down_revision = "0003"

_OF_INCIDENTS: dict[str, sa.types.TypeEngine[Any]] = {
    "link": sa.Integer(),
    "domain": sa.Text(),
    "nodes": sa.JSON(none_as_null=True),
    "parts": sa.Text(),
}


def upgrade() -> None:
    """Create the table, add the columns."""
    op.create_table(
        "histories",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("since", UtcTime, nullable=False),
        sa.Column("until", UtcTime, nullable=False),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.Column("done", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("source", "since", name="pk_histories"),
    )
    for name, kind in _OF_INCIDENTS.items():
        op.add_column("incidents", sa.Column(name, kind))
    _create_checks()


def _create_checks() -> None:
    """What each check said of nodes, and the record of each."""
    op.create_table(
        "check_cases",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("said", UtcTime, nullable=False),
        sa.Column("last", UtcTime, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.PrimaryKeyConstraint("source", "name", "node", "said", name="pk_check_cases"),
    )
    op.create_index("ix_check_cases_node_said", "check_cases", ["node", "said"])
    unjudged = sa.text("outcome IS NULL")
    op.create_index(
        "ix_check_cases_unjudged", "check_cases", ["said"], postgresql_where=unjudged, sqlite_where=unjudged
    )
    counts = ("said", "waiting", "followed", "cleared", "contradicted", "unknown", "nodes")
    shares = ("right", "wrong", "precision", "low", "high")
    op.create_table(
        "check_records",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in counts),
        *(sa.Column(name, sa.Float, nullable=False) for name in shares),
        sa.Column("last", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("source", "name", name="pk_check_records"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("check_records")
    op.drop_table("check_cases")
    for name in _OF_INCIDENTS:
        op.drop_column("incidents", name)
    op.drop_table("histories")

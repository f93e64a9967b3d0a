"""What real clusters need: what was taken of a Prometheus's history; an incident's link, and its NVLink domain."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0004"
down_revision = "0003"

_OF_INCIDENTS = {
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


def downgrade() -> None:
    """Drop them."""
    for name in _OF_INCIDENTS:
        op.drop_column("incidents", name)
    op.drop_table("histories")

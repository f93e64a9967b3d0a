"""Who may say what about which node."""

import sqlalchemy as sa
from alembic import op

from store.database.audit_chain import seal
from store.tables.schema import UtcTime

revision = "0002"
down_revision = "0001"

_TABLES = sa.MetaData(naming_convention={"pk": "pk_%(table_name)s"})

sa.Table(
    "inventory",
    _TABLES,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("known_by", sa.Text, primary_key=True),
    sa.Index("ix_inventory_known_by_node", "known_by", "node"),
)
sa.Table(
    "scheduler_looks",
    _TABLES,
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("seen", UtcTime, nullable=False),
)
sa.Table(
    "scheduler_nodes",
    _TABLES,
    sa.Column("scheduler", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("is_out", sa.Boolean, nullable=False),
    sa.Column("up_since", UtcTime),
    sa.Column("back", UtcTime),
    sa.Index("ix_scheduler_nodes_node", "node"),
)

_LIVE = sa.text("revoked IS NULL")
sa.Table(
    "tokens",
    _TABLES,
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("created", UtcTime, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires", UtcTime),
    sa.Column("uses", sa.Integer),
    sa.Column("used", sa.Integer, nullable=False),
    sa.Column("last_used", UtcTime),
    sa.Column("revoked", UtcTime),
    sa.Column("revoked_by", sa.Text),
    sa.Column("changed", sa.BigInteger, nullable=False),
    sa.Index("ix_tokens_live", "name", unique=True, postgresql_where=_LIVE, sqlite_where=_LIVE),
    sa.Index("ix_tokens_changed", "changed"),
)

# Only nodes.csv says these of a node: where they stand, it named the node.
_OF_ARCHIVES = ("rack", "leaf", "gpu_model", "gpus", "driver", "in_service_since", "in_service_until", "nvlink_domain")


def upgrade() -> None:
    """Create the new tables; the nodes of earlier archives stay known."""
    _TABLES.create_all(op.get_bind())
    told = " OR ".join(f"{name} IS NOT NULL" for name in _OF_ARCHIVES)
    op.execute(f"INSERT INTO inventory (node, known_by) SELECT node, 'archive' FROM nodes WHERE {told}")  # noqa: S608
    op.add_column("sidecars", sa.Column("unbroken_since", UtcTime))
    op.add_column("audit", sa.Column("position", sa.BigInteger))
    op.add_column("audit", sa.Column("hash", sa.Text))
    op.create_index("ix_audit_position", "audit", ["position"], unique=True)
    # The rows of before are chained as they are: what was done to them until now cannot be seen any more.
    connection = op.get_bind()
    seal(connection, list(connection.scalars(sa.text("SELECT seq FROM audit ORDER BY seq"))))


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_audit_position", "audit")
    for table, column in (("audit", "hash"), ("audit", "position"), ("sidecars", "unbroken_since")):
        op.drop_column(table, column)
    _TABLES.drop_all(op.get_bind())

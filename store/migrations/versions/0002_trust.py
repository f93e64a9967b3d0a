"""Who may say what about which node."""

import sqlalchemy as sa
from alembic import op

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

# Only nodes.csv says these of a node: where they stand, it named the node.
_OF_ARCHIVES = ("rack", "leaf", "gpu_model", "gpus", "driver", "in_service_since", "in_service_until", "nvlink_domain")


def upgrade() -> None:
    """Create the new tables; the nodes of earlier archives stay known."""
    _TABLES.create_all(op.get_bind())
    told = " OR ".join(f"{name} IS NOT NULL" for name in _OF_ARCHIVES)
    op.execute(f"INSERT INTO inventory (node, known_by) SELECT node, 'archive' FROM nodes WHERE {told}")  # noqa: S608


def downgrade() -> None:
    """Drop them."""
    _TABLES.drop_all(op.get_bind())

"""What real clusters need: the NVLink domain of an incident, its link and the nodes that it took along."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_OF_INCIDENTS = {
    "link": sa.Integer(),
    "domain": sa.Text(),
    "nodes": sa.JSON(none_as_null=True),
    "parts": sa.Text(),
}


def upgrade() -> None:
    """Add the columns."""
    for name, kind in _OF_INCIDENTS.items():
        op.add_column("incidents", sa.Column(name, kind))


def downgrade() -> None:
    """Drop them."""
    for name in _OF_INCIDENTS:
        op.drop_column("incidents", name)

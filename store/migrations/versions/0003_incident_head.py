"""What names an incident: which source said it, and the name of the device where it has no address."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; incidents of before have neither."""
    op.add_column("incidents", sa.Column("source", sa.Text))
    op.add_column("incidents", sa.Column("name", sa.Text))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("incidents", "name")
    op.drop_column("incidents", "source")

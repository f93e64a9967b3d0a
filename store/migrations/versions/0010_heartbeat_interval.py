"""How often each sidecar reports, beside its report."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column; a report that is there already keeps it within, until the next one comes."""
    op.add_column("sidecars", sa.Column("interval_s", sa.Float))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("sidecars", "interval_s")

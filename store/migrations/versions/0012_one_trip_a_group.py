"""Of each group of nodes one trip of the breaker is in force at a time, however many write it down."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the index that holds it."""
    in_force = sa.text("reset IS NULL")
    op.create_index(
        "ix_trips_in_force",
        "trips",
        ["kind", "name"],
        unique=True,
        postgresql_where=in_force,
        sqlite_where=in_force,
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_trips_in_force", "trips")

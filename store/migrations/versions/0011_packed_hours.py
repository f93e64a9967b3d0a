"""Hours of telemetry whose devices are packed, and the dictionaries that unpack them."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Make room for them; nothing is packed here, and no row is written anew."""
    op.add_column("telemetry", sa.Column("packed", sa.LargeBinary))
    op.create_table(
        "packed_days",
        sa.Column("day", UtcTime, nullable=False, autoincrement=False),
        sa.Column("dictionary", sa.LargeBinary, nullable=False),
        sa.Column("done", UtcTime),
        sa.PrimaryKeyConstraint("day", name="pk_packed_days"),
    )


def downgrade() -> None:
    """Drop it; what is packed by then is lost with it: prune or export first."""
    op.drop_table("packed_days")
    op.drop_column("telemetry", "packed")

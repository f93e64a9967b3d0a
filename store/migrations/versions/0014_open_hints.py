"""Open and valid hints, and a hint's deliveries, are found without reading all that there ever were."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the indexes."""
    op.create_index("ix_hints_state", "hints", ["state"])
    op.create_index("ix_hints_valid_until", "hints", ["valid_until"])
    op.create_index("ix_outbox_hint", "outbox", ["hint"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_outbox_hint", "outbox")
    op.drop_index("ix_hints_valid_until", "hints")
    op.drop_index("ix_hints_state", "hints")

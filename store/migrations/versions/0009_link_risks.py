"""Of each link's score: the host at its end, what its own signs add, and the risk that its loss stops a job."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add them; the next scoring of links fills them."""
    op.add_column("link_scores", sa.Column("node", sa.Text))
    op.add_column("link_scores", sa.Column("own_risk", sa.Float))
    op.add_column("link_scores", sa.Column("stop_risk", sa.Float))
    op.create_index("ix_link_scores_horizon_h_own_risk", "link_scores", ["horizon_h", "own_risk"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_link_scores_horizon_h_own_risk", "link_scores")
    for name in ("stop_risk", "own_risk", "node"):
        op.drop_column("link_scores", name)

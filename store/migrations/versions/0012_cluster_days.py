"""What of the cluster's UTC days went into each bucket: the runs' days, summed once."""

import sqlalchemy as sa
from alembic import op

from store.tables.schema import UtcTime

revision = "0012"
down_revision = "0011"

_FILL = """
INSERT INTO cluster_days (day, bucket, wall_ms, gpu_ms, unmeasured_ms)
SELECT day, bucket, sum(wall_ms), coalesce(sum(gpu_ms), 0), sum(CASE WHEN gpu_ms IS NULL THEN wall_ms ELSE 0 END)
FROM run_days GROUP BY day, bucket
"""


def upgrade() -> None:
    """Sum up the days of the runs that are there."""
    op.create_table(
        "cluster_days",
        sa.Column("day", UtcTime, nullable=False, autoincrement=False),
        sa.Column("bucket", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("wall_ms", "gpu_ms", "unmeasured_ms")),
        sa.PrimaryKeyConstraint("day", "bucket", name="pk_cluster_days"),
    )
    op.execute(_FILL)


def downgrade() -> None:
    """Drop it; the runs' days are as they were."""
    op.drop_table("cluster_days")

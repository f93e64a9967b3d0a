"""The tables of the predictor's models: `store/schema.py` has them with the rest."""

import sqlalchemy as sa

from store.metadata import metadata
from store.utc_time import UtcTime

models = sa.Table(
    "models",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("created", UtcTime, nullable=False),
    sa.Column("trained_until", UtcTime, nullable=False),
    sa.Column("horizon_h", sa.Integer, nullable=False),
    sa.Column("features", sa.JSON, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("blob", sa.LargeBinary, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    # With defaults: a server of before writes none of these.
    sa.Column("kind", sa.Text, nullable=False, server_default="gbt"),
    sa.Column("role", sa.Text, nullable=False, server_default="champion"),
    sa.Column("data", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("code", sa.Text, nullable=False, server_default=""),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("by", sa.Text, nullable=False, server_default=""),
    sa.Column("since", UtcTime),
    sa.Column("profile", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("checks", sa.JSON, nullable=False, server_default="{}"),
)

scorings = sa.Table(  # what each model said of every node at some moments: to be judged by what came
    "scorings",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("time", UtcTime, primary_key=True),
    sa.Column("horizon_h", sa.Integer, nullable=False),
    sa.Column("scores", sa.LargeBinary, nullable=False),  # zstd of JSON: {node: score}
    sa.Column("spread", sa.LargeBinary),  # zstd of JSON: {feature: nodes in each part of its profile}
    sa.Index(None, "horizon_h", "time"),
)

keys = sa.Table(  # secrets that every server of the database shares
    "keys",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
)

link_scores = sa.Table(  # each link's newest score; a scoring takes the place of the one before
    "link_scores",
    metadata,
    sa.Column("link", sa.Text, primary_key=True),
    sa.Column("horizon_h", sa.Integer, primary_key=True),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("score", sa.Float, nullable=False),
    sa.Column("ends", sa.JSON, nullable=False),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Index(None, "horizon_h", "score"),
)

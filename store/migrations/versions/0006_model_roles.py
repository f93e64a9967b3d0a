"""What each model is used for and was made of; what models said, to be judged; the key of the control group.

The new columns have defaults: servers of before go on, and what they train is a champion as it always was.
"""

import sqlalchemy as sa
from alembic import op

from store.database.partitions import with_lock_timeout
from store.tables.schema import UtcTime

revision = "0006"
down_revision = "0005"

_TRIES = 600
_TEXTS = {"kind": "gbt", "role": "champion", "code": "", "why": "", "by": ""}
_DOCUMENTS = ("data", "profile", "checks")
# Of each horizon the newest was the one that scored.
_RETIRE = """UPDATE models SET role = 'retired' WHERE EXISTS (
    SELECT 1 FROM models AS newer WHERE newer.horizon_h = models.horizon_h AND (
        newer.trained_until > models.trained_until
        OR newer.trained_until = models.trained_until AND newer.created > models.created))"""


def upgrade() -> None:
    """Add the columns and tables; on PostgreSQL no lock is waited for, and it may be cut off and be run again."""
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            with_lock_timeout(op.get_bind().engine, _extend, _TRIES)
    else:
        for column in _columns():
            op.add_column("models", column)
        op.execute(_RETIRE)
    _create_tables()


def _columns() -> list[sa.Column[object]]:
    texts = [sa.Column(name, sa.Text, nullable=False, server_default=text) for name, text in _TEXTS.items()]
    documents = [sa.Column(name, sa.JSON, nullable=False, server_default="{}") for name in _DOCUMENTS]
    return [*texts, *documents, sa.Column("since", UtcTime)]


def _extend(connection: sa.Connection) -> None:
    """A constant default is a matter of the catalogue alone: the table is not written anew."""
    for name, text in _TEXTS.items():
        statement = f"ALTER TABLE models ADD COLUMN IF NOT EXISTS {name} text NOT NULL DEFAULT '{text}'"
        connection.execute(sa.text(statement))
    for name in _DOCUMENTS:
        statement = f"ALTER TABLE models ADD COLUMN IF NOT EXISTS {name} json NOT NULL DEFAULT '{{}}'"
        connection.execute(sa.text(statement))
    connection.execute(sa.text("ALTER TABLE models ADD COLUMN IF NOT EXISTS since timestamptz"))
    connection.execute(sa.text(_RETIRE))


def _create_tables() -> None:
    op.create_table(
        "scorings",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("time", UtcTime, primary_key=True),
        sa.Column("horizon_h", sa.Integer, nullable=False),
        sa.Column("scores", sa.LargeBinary, nullable=False),
        sa.Column("spread", sa.LargeBinary),
    )
    op.create_index("ix_scorings_horizon_h_time", "scorings", ["horizon_h", "time"])
    op.create_table(
        "keys",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop them; the newest model of a horizon scores again, whatever its role was."""
    op.drop_table("keys")
    op.drop_table("scorings")
    for name in (*_TEXTS, *_DOCUMENTS, "since"):
        op.drop_column("models", name)

"""Events, telemetry and scores by the day on PostgreSQL; what nodes, ledgers and incidents in the making need.

The key of `events` becomes (id, time): a partitioned table's key must hold what it is partitioned by.
"""

import sqlalchemy as sa
from alembic import op

from store.partitions import create_default
from store.schema import UtcTime

revision = "0004"
down_revision = "0003"

_KEYS = {"events": ["id", "time"], "telemetry": ["node", "time"], "scores": ["node", "horizon_h", "time"]}
_MEASURES = (
    "gpu_temp_mean_c",
    "gpu_temp_max_c",
    "gpu_temp_spread_c",
    "memory_temp_max_c",
    "power_mean_w",
    "power_max_w",
    "gpu_util_mean",
    "sm_clock_min_mhz",
)


def upgrade() -> None:
    """Divide what there is by the day, and add the new tables."""
    op.add_column("telemetry", sa.Column("devices", sa.JSON))
    if op.get_bind().dialect.name == "postgresql":
        for table in _KEYS:
            _divide(table)
    else:
        _rekey_sqlite()
    _create_tables()


def _rekey_sqlite() -> None:
    """SQLite cannot change a key: the table is made anew."""
    connection = op.get_bind()
    indexes = connection.scalars(
        sa.text("SELECT sql FROM sqlite_master WHERE tbl_name = 'events' AND type = 'index' AND sql IS NOT NULL")
    ).all()
    table = sa.Table("events", sa.MetaData(), autoload_with=connection)
    columns = [sa.Column(c.name, c.type, nullable=c.nullable, primary_key=c.name in _KEYS["events"]) for c in table.c]
    op.create_table("events_new", *columns, sa.PrimaryKeyConstraint("id", "time", name="pk_events"))
    op.execute("INSERT INTO events_new SELECT * FROM events")
    op.drop_table("events")
    op.rename_table("events_new", "events")
    for definition in indexes:
        op.execute(definition)


def _divide(table: str) -> None:
    """The table made anew, divided; its rows moved over."""
    connection = op.get_bind()
    indexes = connection.execute(
        sa.text("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :table AND indexname NOT LIKE 'pk_%'"),
        {"table": table},
    ).all()
    op.rename_table(table, f"{table}_before")
    for name, _definition in indexes:
        op.execute(f"DROP INDEX {name}")
    op.execute(f"ALTER TABLE {table}_before DROP CONSTRAINT pk_{table}")
    op.execute(f"CREATE TABLE {table} (LIKE {table}_before INCLUDING DEFAULTS) PARTITION BY RANGE (time)")
    op.create_primary_key(f"pk_{table}", table, _KEYS[table])
    for _name, definition in indexes:
        op.execute(definition)
    create_default(connection, table)
    op.execute(f"INSERT INTO {table} SELECT * FROM {table}_before")  # noqa: S608 - a name of ours
    op.drop_table(f"{table}_before")


def _create_tables() -> None:
    op.create_table(
        "intake",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("events", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "sidecars",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("time", UtcTime, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("started", UtcTime, nullable=False),
        sa.Column("troubled", sa.Boolean, nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
    )
    op.create_index("ix_sidecars_received", "sidecars", ["received"])
    op.create_table(
        "ledgers",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("computed", UtcTime, nullable=False),
        sa.Column("until", UtcTime, nullable=False),
        sa.Column("ledger", sa.JSON, nullable=False),
    )
    op.create_table(
        "event_days",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("day", UtcTime, primary_key=True),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("code", sa.BigInteger, primary_key=True),
        sa.Column("severity", sa.Text, primary_key=True),
        sa.Column("count", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_event_days_day", "event_days", ["day"])
    op.create_table(
        "telemetry_days",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("day", UtcTime, primary_key=True),
        sa.Column("hours", sa.Integer, nullable=False),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("gpus_seen", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Float) for name in _MEASURES),
    )
    op.create_index("ix_telemetry_days_day", "telemetry_days", ["day"])


def downgrade() -> None:
    """Drop the new tables; what is divided stays divided."""
    for table in ("telemetry_days", "event_days", "ledgers", "sidecars", "intake"):
        op.drop_table(table)
    op.drop_column("telemetry", "devices")

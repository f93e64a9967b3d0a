"""Events, telemetry and scores by the day on PostgreSQL; what nodes, ledgers and incidents in the making need.

The key of `events` becomes (id, time): a partitioned table's key must hold what it is partitioned by.
On PostgreSQL the tables of before become the first partition as they are, of all until `cut`: nothing is copied, and
readers and writers go on. It may be cut off at any point and be run again.
"""

from datetime import UTC, datetime, timedelta
from functools import partial

import sqlalchemy as sa
from alembic import op

from store.database.partitions import with_lock_timeout
from store.tables.schema import UtcTime

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
# Servers of before take what is dated up to a day ahead, for as long as this takes.
_AHEAD_DAYS = 4
_TRIES = 600


def upgrade() -> None:
    """Divide what there is by the day, and add the new tables."""
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            engine = op.get_bind().engine
            cut = (datetime.now(UTC) + timedelta(days=_AHEAD_DAYS)).date().isoformat()
            for table in _KEYS:
                _divide(engine, table, f"'{cut}T00:00:00Z'")
            with_lock_timeout(engine, _add_columns, _TRIES)
    else:
        op.add_column("telemetry", sa.Column("devices", sa.JSON))
        op.add_column("incidents", sa.Column("heads", sa.Text))
        _rekey_sqlite()
    _create_tables()


def _add_columns(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE telemetry ADD COLUMN IF NOT EXISTS devices json"))
    connection.execute(sa.text("ALTER TABLE incidents ADD COLUMN IF NOT EXISTS heads text"))


def _divide(engine: sa.Engine, table: str, cut: str) -> None:
    """Prepare the table for being a partition while it is in use, then put the divided one in its place."""
    with engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        query = sa.text("SELECT relkind FROM pg_class WHERE oid = to_regclass(:name)")
        if connection.scalar(query, {"name": table}) == "p":
            return
        if table == "events":
            _build_key(connection)
        with_lock_timeout(engine, partial(_promise, table=table, cut=cut), _TRIES)
        _set_aside(connection, table, cut)
        _check(connection, table)
    with_lock_timeout(engine, partial(_swap, table=table, cut=cut), _TRIES)


def _build_key(connection: sa.Connection) -> None:
    """The new key's index, made while the table is written; one that was cut off is made anew."""
    found = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('events_before_key')"
    valid = connection.scalar(sa.text(found))
    if valid is False:
        connection.execute(sa.text("DROP INDEX CONCURRENTLY events_before_key"))
    if valid is not True:
        connection.execute(sa.text("CREATE UNIQUE INDEX CONCURRENTLY events_before_key ON events (id, time)"))


def _promise(connection: sa.Connection, table: str, cut: str) -> None:
    """From now on nothing of beyond the cut comes in."""
    for statement in (
        f"CREATE TABLE IF NOT EXISTS {table}_other (LIKE {table} INCLUDING DEFAULTS)",
        f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_before_cut",
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_before_cut CHECK (time < {cut}) NOT VALID",
    ):
        connection.execute(sa.text(statement))


def _set_aside(connection: sa.Connection, table: str, cut: str) -> None:
    """What is dated beyond the cut waits in the table of others; an earlier try may have had an earlier cut."""
    for source, target, beyond in ((table, f"{table}_other", ">="), (f"{table}_other", table, "<")):
        connection.execute(
            sa.text(
                f"WITH moved AS (DELETE FROM {source} WHERE time {beyond} {cut} RETURNING *)"  # noqa: S608 - ours
                f" INSERT INTO {target} SELECT * FROM moved ON CONFLICT DO NOTHING"
            )
        )


def _check(connection: sa.Connection, table: str) -> None:
    """Read the table once, so that attaching it need not."""
    connection.execute(sa.text(f"ALTER TABLE {table} VALIDATE CONSTRAINT {table}_before_cut"))


def _swap(connection: sa.Connection, table: str, cut: str) -> None:
    """The table becomes the first partition of a new one of its name. The catalogue alone is written."""
    connection.execute(sa.text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
    before, key = f"{table}_before", ", ".join(_KEYS[table])
    query = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :table AND indexname LIKE 'ix\\_%'"
    indexes = connection.execute(sa.text(query), {"table": table}).all()
    statements = [f"ALTER TABLE {table} RENAME TO {before}"]
    statements += [f"ALTER INDEX {name} RENAME TO {name}_before" for name, _definition in indexes]
    if table == "events":
        statements += [
            f"ALTER TABLE {before} DROP CONSTRAINT pk_{table}",
            f"ALTER TABLE {before} ADD CONSTRAINT pk_{before} PRIMARY KEY USING INDEX events_before_key",
        ]
    else:
        statements.append(f"ALTER TABLE {before} RENAME CONSTRAINT pk_{table} TO pk_{before}")
    statements += [
        f"CREATE TABLE {table} (LIKE {before} INCLUDING DEFAULTS) PARTITION BY RANGE (time)",
        f"ALTER TABLE {table} ADD CONSTRAINT pk_{table} PRIMARY KEY ({key})",
        *(definition for _name, definition in indexes),
    ]
    if connection.scalar(sa.text(f"SELECT EXISTS (SELECT FROM {table})")):  # noqa: S608 - a name of ours
        statements += [
            f"ALTER TABLE {table} ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ({cut})",
            f"ALTER TABLE {before} DROP CONSTRAINT {before}_cut",
        ]
    else:
        statements.append(f"DROP TABLE {before}")
    statements += [
        f"ALTER TABLE {table} ATTACH PARTITION {table}_other DEFAULT",
    ]
    for statement in statements:
        connection.execute(sa.text(statement))


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


def _create_tables() -> None:
    op.create_table(
        "intake",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("received", UtcTime, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("events", sa.LargeBinary, nullable=False),
        sa.Column("error", sa.Text),
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
    op.drop_column("incidents", "heads")
    op.drop_column("telemetry", "devices")

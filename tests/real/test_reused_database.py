"""A database that a test has used is the same as a new one, or is used no more."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from real.reused_database import MigratedDatabases

from store.database.audit_chain import AuditEntry, append_audit
from store.database.connections import open_database, writing
from store.database.partitions import ensure_days
from store.tables import schema

pytestmark = pytest.mark.integration

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def used(migrated_databases: MigratedDatabases) -> sa.Engine:
    """A database that nobody has given back."""
    return open_database(migrated_databases.take())


def given_back(databases: MigratedDatabases, used: sa.Engine) -> bool:
    """Whether the next test has it; it is found by the number that the server gave it."""
    number = numbers(used)
    used.dispose()
    databases.give_back(used.url.database or "")
    again = open_database(databases.take())
    same = numbers(again) == number
    assert again.url != used.url
    again.dispose()
    databases.give_back(again.url.database or "")
    return same


def numbers(engine: sa.Engine) -> int:
    """Which database it is."""
    with engine.connect() as connection:
        return int(
            connection.execute(sa.text("SELECT oid FROM pg_database WHERE datname = current_database()")).scalar_one()
        )


def content(engine: sa.Engine) -> dict[str, object]:
    """Every table's rows, the tables there are, and the sequences' next numbers."""
    with engine.connect() as connection:
        names = sorted(sa.inspect(connection).get_table_names())
        found: dict[str, object] = {
            name: connection.execute(sa.select(sa.text("*")).select_from(sa.table(name))).fetchall() for name in names
        }
        found["sequences"] = connection.execute(
            sa.text("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
        ).fetchall()
        found["statistics"] = connection.execute(
            sa.text("SELECT count(*) FROM pg_stats WHERE schemaname = 'public'")
        ).all()
        return found


def test_rows_days_counters_and_statistics_are_gone(migrated_databases: MigratedDatabases, used: sa.Engine) -> None:
    """What was there after the migration is there again, though a test removed it."""
    before = content(used)
    ensure_days(writing(used), [NOW, NOW + timedelta(days=1)], ("events", "scores"), NOW)
    with writing(used).begin() as connection:
        append_audit(connection, [AuditEntry(NOW, "ann", "approved", "h", {})])
        connection.execute(sa.insert(schema.nodes).values(node="a"))
        connection.execute(sa.delete(schema.keys))
    with used.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))
    assert content(used) != before
    assert given_back(migrated_databases, used)
    again = open_database(migrated_databases.take())
    assert content(again) == before
    again.dispose()
    migrated_databases.give_back(again.url.database or "")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE nodes ADD COLUMN more int",
        "CREATE INDEX more ON nodes (node)",
        "DROP TABLE audit",
        "CREATE TABLE more (a int)",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA more",
    ],
)
def test_a_changed_schema_is_used_no_more(migrated_databases: MigratedDatabases, used: sa.Engine, change: str) -> None:
    """The next test has a new database."""
    with used.begin() as connection:
        connection.execute(sa.text(change))
    assert not given_back(migrated_databases, used)


def test_one_that_is_still_read_is_used_no_more(migrated_databases: MigratedDatabases, used: sa.Engine) -> None:
    """It stays as long as its reader."""
    reader = open_database(used.url.render_as_string(hide_password=False))
    with reader.connect() as connection:
        connection.execute(sa.text("SELECT 1"))
        assert not given_back(migrated_databases, used)
    reader.dispose()

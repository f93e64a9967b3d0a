"""docs/operate.md, command by command, against a real PostgreSQL and SQLite's own shell.

What stands in for the machine is in `tests/installed_site.py`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from installed_site import InstalledSite
from real.postgres import Postgres
from real.programs import need

from store.database.audit_chain import AuditEntry, append_audit
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events
from store.records.event import Event
from store.tables import schema

pytestmark = pytest.mark.integration
NOW = datetime(2025, 3, 1, tzinfo=UTC)


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres) -> Iterator[InstalledSite]:
    """One with an SQLite database that holds something."""
    need("sqlite3", "sqlite3")
    found = InstalledSite(tmp_path, postgres_server, "operate.md")
    found.postgres("createuser", "foreshock")
    found.postgres("createdb", "--owner", "foreshock", "foreshock")
    url = postgres_server.url("foreshock").replace("postgres@", "foreshock@")
    (found.paths["/etc/foreshock"] / "database.url").write_text(url + "\n")
    file = found.paths["/var/lib/foreshock-server"] / "foreshock.db"
    engine = open_database(f"sqlite:///{file}")
    migrate(engine)
    happen(engine, "first")
    engine.dispose()
    yield found
    found.postgres("dropdb", "foreshock")
    found.postgres("dropuser", "foreshock")


def happen(engine: sa.Engine, name: str) -> None:
    """An event, and a row of the audit."""
    with writing(engine).begin() as connection:
        event = Event(NOW, "gpu-017", "kernel", "xid", 79, "fatal", "hardware", message=name, id=name)
        append_events(connection, [event], received=NOW)
        append_audit(connection, [AuditEntry(NOW, "ann", "approved", name, {})])


def events(url: str) -> set[str]:
    """The events that a database holds."""
    engine = open_database(url)
    with engine.connect() as connection:
        found = set(connection.scalars(sa.select(schema.events.c.id)))
    engine.dispose()
    return found


def test_the_page_leads_from_sqlite_to_postgresql_and_back_in_time(site: InstalledSite) -> None:
    """Moved, backed up, something happens, restored: what came before the backup is there, and nothing else."""
    url = (site.paths["/etc/foreshock"] / "database.url").read_text().strip()
    assert "events" in site.run(site.blocks("From SQLite to PostgreSQL")[0])
    assert events(url) == {"first"}
    site.run(site.blocks("Back up")[0])
    engine = open_database(url)
    happen(engine, "later")
    engine.dispose()
    assert events(url) == {"first", "later"}
    assert "each as it was written" in site.run(site.blocks("Restore")[0])
    assert events(url) == {"first"}
    site.run(site.blocks("Upgrade, and go back")[0])
    assert site.asked() == [
        "stop foreshock-server",
        "start foreshock-server",
        "stop foreshock-server",
        "start foreshock-server",
        "restart foreshock-server foreshock-dashboard",
    ]


def test_a_backup_of_sqlite_is_whole_while_a_server_writes(site: InstalledSite) -> None:
    """What stands in the write-ahead log comes along; a restore forgets what came later."""
    file = site.paths["/var/lib/foreshock-server"] / "foreshock.db"
    url = f"sqlite:///{file}"
    engine = open_database(url)
    happen(engine, "second")
    site.run(site.blocks("Back up")[1])
    happen(engine, "later")
    engine.dispose()
    assert "the schema is at" in site.run(site.blocks("Restore")[1])
    assert events(url) == {"first", "second"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_every_block_of_the_page_is_run_by_a_test(site: InstalledSite) -> None:
    """Those above, by heading and number."""
    run = {"Back up": 2, "Restore": 2, "Upgrade, and go back": 1, "From SQLite to PostgreSQL": 1}
    assert site.headings() == run

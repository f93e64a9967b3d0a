"""docs/operate.md, command by command, against a real PostgreSQL and SQLite's own shell.

Stand-ins: `sudo -u postgres` runs its command as it is, `systemctl` writes down what it was asked (there is no systemd
here), `pip` installs nothing. Paths of the page lead into the test's folder.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from real.patience import patience
from real.postgres import Postgres
from real.programs import need

from store.database.audit_chain import AuditEntry, append_audit
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events
from store.records.event import Event
from store.tables import schema

pytestmark = pytest.mark.integration
PAGE = Path(__file__).parents[2] / "docs" / "operate.md"
NOW = datetime(2025, 3, 1, tzinfo=UTC)
SHIMS = {"sudo": 'shift 2; exec "$@"', "systemctl": 'echo "$@" >> "$ASKED"', "pip": "exit 0"}


class Site:
    """A machine of one's own, in a folder: the units' paths, and PostgreSQL."""

    def __init__(self, folder: Path, server: Postgres) -> None:
        self.folder, self.server = folder, server
        self.file = folder / "var" / "foreshock.db"
        for name in ("bin", "etc", "var", "home"):
            (folder / name).mkdir()
        for name, script in SHIMS.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bin" / name).chmod(0o755)
        self.postgres("createuser", "foreshock")
        self.postgres("createdb", "--owner", "foreshock", "foreshock")
        url = server.url("foreshock").replace("postgres@", "foreshock@")
        (folder / "etc" / "database.url").write_text(url + "\n")
        self.setting = self.blocks("")[0]

    def postgres(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's own programs."""
        subprocess.run([self.server.bin / program, *arguments], check=True, env=self.environment())

    def environment(self) -> dict[str, str]:
        """What a shell is told: nothing of ours but the paths."""
        found = {name: value for name, value in os.environ.items() if not name.startswith(("FORESHOCK_", "PG"))}
        path = f"{self.folder / 'bin'}:{self.server.bin}:{found['PATH']}"
        own = {"PGHOST": str(self.server.folder), "PGUSER": "postgres", "ASKED": str(self.folder / "asked")}
        return {**found, **own, "PATH": path}

    def blocks(self, heading: str) -> list[str]:
        """The shell blocks under a heading of the page; those before the first for none."""
        parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = parts[0] if not heading else parts[parts.index(heading) + 1]
        return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def run(self, heading: str, number: int) -> str:
        """Run one block as the page has it; what it prints."""
        script = f"set -euo pipefail\n{self.setting}{self.blocks(heading)[number]}"
        for known, here in (
            ("/opt/foreshock/.venv/bin:", f"{self.folder / 'bin'}:{Path(sys.executable).parent}:"),
            ("/etc/foreshock", str(self.folder / "etc")),
            ("/var/lib/foreshock-server", str(self.folder / "var")),
        ):
            script = script.replace(known, here)
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder / "home", env=self.environment(), capture_output=True, text=True,
            timeout=patience(120), check=False,
        )  # fmt: skip
        assert done.returncode == 0, (script, done.stdout[-1000:], done.stderr[-2000:])
        return done.stdout

    def asked(self) -> list[str]:
        """What systemd was asked."""
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres) -> Iterator[Site]:
    """One with an SQLite database that holds something."""
    need("sqlite3", "sqlite3")
    found = Site(tmp_path, postgres_server)
    engine = open_database(f"sqlite:///{found.file}")
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


def test_the_page_leads_from_sqlite_to_postgresql_and_back_in_time(site: Site) -> None:
    """Moved, backed up, something happens, restored: what came before the backup is there, and nothing else."""
    url = (site.folder / "etc" / "database.url").read_text().strip()
    assert "events" in site.run("From SQLite to PostgreSQL", 0)
    assert events(url) == {"first"}
    site.run("Back up", 0)
    engine = open_database(url)
    happen(engine, "later")
    engine.dispose()
    assert events(url) == {"first", "later"}
    assert "each as it was written" in site.run("Restore", 0)
    assert events(url) == {"first"}
    site.run("Upgrade, and go back", 0)
    assert site.asked() == [
        "stop foreshock-server",
        "start foreshock-server",
        "stop foreshock-server",
        "start foreshock-server",
        "restart foreshock-server foreshock-dashboard",
    ]


def test_a_backup_of_sqlite_is_whole_while_a_server_writes(site: Site) -> None:
    """What stands in the write-ahead log comes along; a restore forgets what came later."""
    url = f"sqlite:///{site.file}"
    engine = open_database(url)
    happen(engine, "second")
    site.run("Back up", 1)
    happen(engine, "later")
    engine.dispose()
    assert "the schema is at" in site.run("Restore", 1)
    assert events(url) == {"first", "second"}
    assert site.file.stat().st_mode & 0o777 == 0o600


def test_every_block_of_the_page_is_run_by_a_test() -> None:
    """Those above, by heading and number."""
    page = PAGE.read_text(encoding="utf-8")
    found = {
        heading: len(re.findall(r"^```sh$", text, re.MULTILINE))
        for heading, text in re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    }
    run = {"Back up": 2, "Restore": 2, "Upgrade, and go back": 1, "From SQLite to PostgreSQL": 1}
    assert {heading: count for heading, count in found.items() if count} == run

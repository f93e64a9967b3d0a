"""A disk that is full under the database, a damaged spool, a damaged SQLite file, a migration that is killed."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory
from crash.feeds import KernelLog, Load
from crash.proof import stored, wait_until_all_is_stored
from crash.scene import LONG, NODE, ROUNDS, SEED, feeds_in, note, settle, sources_of
from real.fleet import FORESHOCK, fleet
from real.fleet_postgres import fleet_postgres
from real.patience import patience
from real.programs import wait_for

from store.database.connections import _config, newest_revision, open_database, revision, writing
from store.database.partitions import ensure_days
from store.events.append import append_events
from store.records.event import Event
from store.tables import schema

pytestmark = [pytest.mark.crash, pytest.mark.integration, pytest.mark.xdist_group("crash")]
FEW = max(2, ROUNDS // 10)
_RECEIVED = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of some megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="fs-disk-"))
    options = ["-t", "tmpfs", "-o", f"size={request.param},mode=1777", "none", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    folder.rmdir()


def fill_up(disk: Path) -> Path:
    """Take all that is free on a disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            return ballast


@pytest.mark.parametrize("small_disk", ["200m"], indirect=True)
def test_a_full_disk_under_a_sqlite_file_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    """Again and again somebody fills the disk, and clears it; now and then the server is killed on the full disk."""
    chance, feeds, file = random.Random(SEED), feeds_in(tmp_path)[:2], small_disk / "foreshock.db"

    def rows(query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(file, timeout=patience(30))) as connection:
            return connection.execute(query).fetchall()

    with fleet(tmp_path) as programs:
        server = programs.server(f"sqlite:///{file}")
        programs.sidecar([server.url], NODE, *sources_of(feeds))
        with Load(feeds, SEED):
            for number in range(FEW):
                time.sleep(chance.uniform(0.5, 2.0))
                ballast = fill_up(small_disk)
                time.sleep(chance.uniform(0.5, 2.0))
                if number % 3 == 2:
                    server.kill()
                ballast.unlink()
                programs.revive()
        settle(programs, feeds, rows, "the disk of a SQLite file is full, at times kill -9 on it", FEW)


@LONG
@pytest.mark.parametrize("small_disk", ["500m"], indirect=True)
def test_a_full_disk_under_postgresql_loses_nothing(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL refuses, or ends by itself; its service manager starts it again."""
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    chance, feeds = random.Random(SEED), feeds_in(tmp_path)[:2]
    with fleet(tmp_path) as programs, fleet_postgres(programs, max_wal_size="64MB") as database:
        server = programs.server(database.url)
        programs.sidecar([server.url], NODE, *sources_of(feeds))
        with Load(feeds, SEED):
            for _ in range(FEW):
                time.sleep(chance.uniform(0.5, 2.0))
                ballast = fill_up(small_disk)
                time.sleep(chance.uniform(0.5, 2.0))
                ballast.unlink()
                programs.revive()
        settle(programs, feeds, database.rows, "the disk of PostgreSQL is full", FEW)


def test_what_a_damaged_spool_loses_is_reported_and_the_rest_comes_once(tmp_path: Path) -> None:
    """Bytes of a segment are flipped while sidecar and server are away: the loss is an event, nothing is doubled."""
    chance, log, spool = random.Random(SEED), KernelLog(tmp_path / "kern.log", "filefeed"), tmp_path / f"spool-{NODE}"
    with closing(log), fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        server = programs.server(database.url)
        agent = programs.sidecar([server.url], NODE, *sources_of([log]))
        for _ in range(FEW):
            server.kill()
            log.write(400)
            wait_for("the lines are in the spool", lambda: spooled(spool) > 50_000)
            agent.kill()
            damage(spool, chance)
            programs.revive()
            wait_until_all_is_stored(database.rows, [log], programs.revive, patience_s=5.0)
        held = stored(database.rows, log)
        reported = database.rows("SELECT count(*) FROM events WHERE kind IN ('spool_loss', 'collector_gap')")
        lost = len(set(log.written) - set(held))
        note("bytes of the spool are flipped (each loss is reported)", FEW, len(log.written), lost, 0)
        assert len(held) == len(set(held)), "a line is stored twice"
        assert set(held) <= set(log.written)
        assert lost == 0 or int(str(reported[0][0])) > 0, "a loss that nobody reports"


def spooled(spool: Path) -> int:
    """Bytes in a spool's segments."""
    return sum(file.stat().st_size for file in spool.rglob("*") if file.is_file())


def damage(spool: Path, chance: random.Random) -> None:
    """Flip bytes in the middle of the largest segment of events."""
    segment = max((file for file in spool.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    content = bytearray(segment.read_bytes())
    for _ in range(3):
        content[chance.randrange(len(content) // 4, len(content))] ^= 0xFF
    segment.write_bytes(content)


def filled(file: Path) -> None:
    """A store of some thousand events."""
    engine = open_database(f"sqlite:///{file}")
    subprocess.run([FORESHOCK, "db", "migrate", "--db", f"sqlite:///{file}"], check=True, capture_output=True)
    write(engine, 5000)
    engine.dispose()


def write(engine: sa.Engine, count: int) -> None:
    """So many events."""
    events = [Event(None, NODE, "kernel", "xid", n % 100, "error", message=f"line {n}") for n in range(count)]
    with writing(engine).begin() as connection:
        append_events(connection, events, _RECEIVED)


def test_a_damaged_sqlite_file_is_found_at_the_start_or_holds_all_rows(tmp_path: Path) -> None:
    """The server names the file and the remedy, and ends with 2; it never shows a traceback or loses rows unseen."""
    whole, file, chance, found = tmp_path / "whole.db", tmp_path / "foreshock.db", random.Random(SEED), 0
    filled(whole)
    for _ in range(FEW):
        shutil.copy(whole, file)
        content = bytearray(file.read_bytes())
        start = chance.randrange(4096, len(content) - 4096)
        content[start : start + 4096] = bytes(chance.randrange(256) for _ in range(4096))
        file.write_bytes(content)
        serve = [FORESHOCK, "serve", "--db", f"sqlite:///{file}", "--port", "0"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            is_up = any("API http" in line for line in iter(process.stdout.readline, ""))
            if is_up:
                process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=patience(60))
        assert "Traceback" not in stderr
        if not is_up:
            assert process.returncode == 2, stderr
            assert str(file) in stderr
            found += 1
            continue
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute("SELECT count(*) FROM events").fetchone() == (5000,)
    note(f"a page of a SQLite file is overwritten (found at the start: {found})", FEW, 5000 * FEW, 0, 0)


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_a_migration_that_is_killed_is_done_by_the_next(tmp_path: Path, kind: str) -> None:
    """Whenever it is killed, the schema is whole, with every row, and the audit holds.

    On SQLite it is the old one or the new one; on PostgreSQL, where each step is a transaction, one between them, too.
    """
    chance = random.Random(SEED)
    with fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        url = database.url if kind == "PostgreSQL" else f"sqlite:///{tmp_path / 'foreshock.db'}"
        engine = open_database(url)
        old_store(engine)
        whole = (
            [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]
            if kind == "PostgreSQL"
            else ["0001", newest_revision()]
        )
        for _ in range(FEW):
            process = subprocess.Popen([FORESHOCK, "db", "migrate"], env={**os.environ, "FORESHOCK_DB": url})
            time.sleep(chance.uniform(0.2, 1.5))
            process.kill()
            process.wait()
            assert revision(engine) in whole
        for words in (["db", "migrate"], ["audit", "verify"]):
            subprocess.run(
                [FORESHOCK, *words], env={**os.environ, "FORESHOCK_DB": url}, check=True, capture_output=True
            )
        assert revision(engine) == newest_revision()
        with engine.connect() as connection:
            found = [connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in _OLD_TABLES]
        engine.dispose()
    note(f"kill -9 of a migration of {kind}", FEW, 2 * _ROWS, 2 * _ROWS - sum(map(int, found)), 0)
    assert found == [_ROWS, _ROWS]


_ROWS = 2000
_OLD_TABLES = (schema.events, schema.audit)


def old_store(engine: sa.Engine) -> None:
    """A store of the first schema, with events and an audit."""
    config = _config()
    with writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    ensure_days(engine, [_RECEIVED], ("events",), now=_RECEIVED)
    event = {"time": _RECEIVED, "received": _RECEIVED, "node": NODE, "source": "kernel", "kind": "xid", "message": ""}
    event |= {"severity": "error", "cause": "hardware", "action": "none", "device": {}, "attributes": {}}
    entry = {"time": _RECEIVED, "actor": "policy", "action": "proposed", "detail": {"reason": "line"}}
    with writing(engine).begin() as connection:
        connection.execute(sa.insert(schema.events), [{**event, "id": str(n)} for n in range(_ROWS)])
        old_audit = sa.table("audit", *(sa.column(name, schema.audit.c[name].type) for name in (*entry, "subject")))
        connection.execute(sa.insert(old_audit), [{**entry, "subject": f"h{n}"} for n in range(_ROWS)])

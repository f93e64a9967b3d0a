"""The migration to days, on a database that is in use: nothing is lost, nobody waits, and it may be cut off."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from real.patience import patience
from real.postgres import Postgres

from store.database import connections
from store.database import partitions as brief
from store.database.connections import migrate, newest_revision, open_database, revision
from store.database.partitions import ensure_days, partitions
from store.database.retention import prune
from store.events.append import append_events
from store.records.event import Event
from store.tables import schema

FEW, MANY = 2_000, 200_000
NOW = datetime.now(UTC)
DAY = timedelta(days=1)

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("postgresql")]

# As servers of before wrote and read.
INSERT = (
    "INSERT INTO events (id, time, received, node, source, kind, severity, cause, action, device, message, attributes)"
    " SELECT {id}, {time}, now(), 'n' || i % 100, 'kernel', 'note', 'info', 'unknown', 'none', '{{}}', 'm', '{{}}'"
    " FROM generate_series(1, {rows}) i ON CONFLICT (id) DO NOTHING"
)
OLD_WAY_IS_OVER = "there is no unique or exclusion constraint matching the ON CONFLICT specification"


@pytest.fixture
def old(postgres_server: Postgres) -> Iterator[sa.Engine]:
    """A database as the release before left it, with events of 400 days, one of them dated in 2999."""
    engine = open_database(postgres_server.new_database())
    with engine.connect() as connection:
        config = connections._config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
    with engine.begin() as connection:
        fill(connection, FEW)
        connection.execute(sa.text(INSERT.format(id="'late'", time="timestamptz '2999-01-01Z'", rows=1)))
        connection.execute(sa.text("INSERT INTO telemetry (node, time, samples, gpus_seen) VALUES ('n1', now(), 1, 8)"))
        score = "INSERT INTO scores VALUES ('n1', 24, now(), 0.5, '[]', 'm')"
        connection.execute(sa.text(score))
    yield engine
    engine.dispose()


def fill(connection: sa.Connection, rows: int) -> None:
    """So many events, evenly over 400 days."""
    times = f"now() - i * interval '400 days' / {rows}"
    connection.execute(sa.text(INSERT.format(id="'old' || i", time=times, rows=rows)))


class Traffic:
    """A writer and a reader of the release before; what was acknowledged, and what was refused and why."""

    def __init__(self, engine: sa.Engine) -> None:
        self._dsn = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._over = threading.Event()
        self.started = threading.Semaphore(0)
        self.acknowledged: list[str] = []
        self.refusals: set[str] = set()
        self.seen: list[int] = []
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self.started.acquire(timeout=patience(60))
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        number = 0
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            # Far above the waits of the migration, far below those of whoever is really locked out.
            connection.execute("SET lock_timeout = '20s'")
            while not self._over.is_set():
                number += 1
                try:
                    connection.execute(INSERT.format(id=f"'new{number}'", time="now()", rows=1).encode())
                    self.acknowledged.append(f"new{number}")
                except psycopg.Error as error:
                    self.refusals.add(str(error).splitlines()[0])
                if number == 1:
                    self.started.release()

    def _read(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '20s'")
            while not self._over.is_set():
                row = connection.execute("SELECT count(*) FROM events WHERE time < now() - interval '1 day'").fetchone()
                assert row is not None
                self.seen.append(row[0])
                if len(self.seen) == 1:
                    self.started.release()


def ids(engine: sa.Engine) -> set[str]:
    """Of all events."""
    with engine.connect() as connection:
        found = connection.scalars(sa.select(schema.events.c.id)).all()
    assert len(found) == len(set(found))
    return set(found)


def test_readers_and_writers_go_on_while_a_large_database_is_migrated(old: sa.Engine) -> None:
    """What was acknowledged is there; a read never misses a row; the old way of writing ends with a clear refusal."""
    with old.begin() as connection:
        connection.execute(sa.text("DELETE FROM events WHERE id <> 'late'"))
        fill(connection, MANY)
    with Traffic(old) as traffic:
        migrate(old)
    assert revision(old) == newest_revision()
    assert ids(old) == {f"old{i}" for i in range(1, MANY + 1)} | {"late"} | set(traffic.acknowledged)
    assert {text for text in traffic.refusals if OLD_WAY_IS_OVER not in text} == set()
    assert traffic.acknowledged
    assert min(traffic.seen) >= MANY - MANY // 400
    for name in ("events", "telemetry", "scores"):
        with old.connect() as connection:
            assert [part.name for part in partitions(connection, name)] == [f"{name}_before", f"{name}_other"]


def test_the_first_part_takes_rows_until_its_end_and_is_pruned_and_dropped(old: sa.Engine) -> None:
    """Its old rows go in steps; once all are old, it goes whole. What was dated in 2999 stays with the others."""
    migrate(old)
    ensure_days(old, [NOW], ("events",))
    with old.begin() as connection:
        assert len(append_events(connection, [Event(NOW, "n", "kernel", "note")], NOW).new) == 1
        (before, other) = partitions(connection, "events")
        assert connection.scalar(sa.text("SELECT count(*) FROM events_other")) == 1
    assert before.until is not None
    assert before.until > NOW + 3 * DAY
    ensure_days(old, [before.until], ("events",), before.until)
    assert prune(old, {"events": NOW - 100 * DAY}) == {"events": 1500}
    assert prune(old, {"events": before.until}) == {"events": 501}
    with old.connect() as connection:
        assert [part.name for part in partitions(connection, "events")][1:] == [other.name]
        assert connection.scalar(sa.select(sa.func.sum(schema.event_days.c.count))) == 2001
    assert ids(old) == {"late"}


def test_a_migration_that_was_cut_off_anywhere_goes_on(old: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Died before each of its short transactions, one after the other, and once while the index was made."""
    with old.begin() as connection:
        connection.execute(sa.text("DELETE FROM events WHERE id LIKE 'old%' AND id <> 'old5'"))
        connection.execute(sa.text("CREATE UNIQUE INDEX events_before_key ON events (id, time)"))
        invalid = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'events_before_key'::regclass"
        connection.execute(sa.text(invalid))
    done = brief.with_lock_timeout
    # What is done already is passed by: each of the three tables has two such transactions, and the columns one.
    for reached in (0, 1, 2, 1, 2, 1, 2):
        left = iter(range(reached))

        def die(*arguments: Any, steps: Iterator[int] = left) -> None:
            if next(steps, None) is None:
                raise KeyboardInterrupt
            done(*arguments)

        monkeypatch.setattr(brief, "with_lock_timeout", die)
        with pytest.raises(KeyboardInterrupt):
            migrate(old)
        assert revision(old) == "0003"
    monkeypatch.setattr(brief, "with_lock_timeout", done)
    migrate(old)
    assert ids(old) == {"old5", "late"}
    with old.connect() as connection:
        valid = connection.scalars(sa.text("SELECT indisvalid FROM pg_index i JOIN pg_class c ON c.oid = indexrelid"))
        assert all(valid)


def test_a_long_reader_keeps_the_migration_waiting_and_no_one_else(
    old: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again and again; writers get through between."""
    monkeypatch.setattr(brief, "LOCK_TIMEOUT_MS", 30)
    monkeypatch.setattr(brief, "PAUSE_S", 0.02)
    thread = threading.Thread(target=migrate, args=(old,))
    with old.connect() as reader:
        reader.execute(sa.text("SELECT node FROM telemetry"))
        with Traffic(old) as traffic:
            thread.start()
            enough = len(traffic.acknowledged) + 200
            while len(traffic.acknowledged) < enough and not traffic.refusals:
                assert thread.is_alive()
        assert revision(old) == "0003"
    thread.join()
    assert revision(old) == newest_revision()
    assert {text for text in traffic.refusals if OLD_WAY_IS_OVER not in text} == set()


def test_of_several_that_migrate_at_once_one_works(postgres_server: Postgres) -> None:
    """As when many servers start over a new database."""
    url = postgres_server.new_database()
    engines = [open_database(url) for _ in range(3)]
    failures: list[BaseException] = []

    def work(engine: sa.Engine) -> None:
        try:
            migrate(engine)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {revision(engine) for engine in engines} == {newest_revision()}
    for engine in engines:
        engine.dispose()

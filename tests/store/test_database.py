"""Opening a database: which URLs, and how SQLite is set."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from real.patience import patience
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from store.database.connections import (
    DatabaseError,
    is_away,
    migrate,
    newest_revision,
    open_apart,
    open_database,
    revision,
    writing,
)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "no database URL"),
        ("nonsense", "no database URL"),
        ("mysql://host/db", "mysql is not supported"),
        ("sqlite:////nowhere/at/all/x.db", "create it first"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_remedy(url: str, problem: str) -> None:
    """Never with SQLAlchemy's own words."""
    with pytest.raises(DatabaseError, match=problem):
        open_database(url)


@pytest.mark.parametrize("url", ["postgresql://u@h/db", "postgresql+psycopg://u@h/db"])
def test_any_postgresql_url_gets_the_driver_that_is_installed(url: str) -> None:
    """An operator writes what libpq takes."""
    engine = open_database(url)
    assert engine.driver == "psycopg"
    engine.dispose()


def test_a_new_database_has_no_revision(tmp_path: Path) -> None:
    """Until it is migrated."""
    engine = open_database(f"sqlite:///{tmp_path / 'x.db'}")
    assert revision(engine) is None
    migrate(engine)
    assert revision(engine) == newest_revision() is not None
    engine.dispose()


def test_sqlite_writes_ahead_and_waits_for_others(engine: sa.Engine) -> None:
    """A reader and a writer do not stop each other."""
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_a_reader_sees_the_state_before_a_writer_s_commit(engine: sa.Engine) -> None:
    """And is not blocked by it."""
    count = sa.text("SELECT count(*) FROM nodes")
    with writing(engine).begin() as writer:
        writer.exec_driver_sql("INSERT INTO nodes (node) VALUES ('a')")
        with engine.begin() as reader:
            assert reader.scalar(count) == 0
    with engine.begin() as reader:
        assert reader.scalar(count) == 1


def test_a_second_writer_waits_for_the_first(engine: sa.Engine) -> None:
    """It does not fail."""
    begun = threading.Event()

    def second() -> None:
        begun.set()
        with writing(engine).begin() as connection:
            connection.exec_driver_sql("INSERT INTO nodes (node) VALUES ('b')")

    with writing(engine).begin() as connection:
        connection.exec_driver_sql("INSERT INTO nodes (node) VALUES ('a')")
        thread = threading.Thread(target=second)
        thread.start()
        assert begun.wait(patience(10))
    thread.join(patience(60))
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM nodes").scalar() == 2


def test_an_in_memory_database_works_for_one_connection() -> None:
    """For trying things out."""
    engine = open_database("sqlite://")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


@pytest.mark.integration
def test_what_pgoptions_says_holds_beside_ours(postgres_engine: sa.Engine) -> None:
    """A command that gives way to others has PostgreSQL use one process for it, and none beside that."""
    url = postgres_engine.url.render_as_string(hide_password=False)
    shown = "max_parallel_workers_per_gather", "plan_cache_mode", "work_mem"
    code = (
        "import os; from cli.processes.workers import give_way; from store.database.connections import open_database\n"
        f"give_way(0, os.getppid())\nwith open_database({url!r}).connect() as connection:\n"
        f"    print(*(connection.exec_driver_sql(f'SHOW {{name}}').scalar() for name in {shown}))"
    )
    given = {**os.environ, "PGOPTIONS": "-c work_mem=7MB"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=given)
    assert done.stdout.split() == ["0", "force_custom_plan", "7MB"]


@pytest.mark.integration
def test_postgresql_is_told_how_long_to_wait(postgres_engine: sa.Engine) -> None:
    """Who we are, and that a transaction left open ends; what the URL says wins."""
    asked = sa.text("SELECT name, setting FROM pg_settings WHERE name IN ('application_name', 'statement_timeout')")
    idle = sa.text("SHOW idle_in_transaction_session_timeout")
    plans = sa.text("SHOW plan_cache_mode")
    with postgres_engine.connect() as connection:
        assert {row[0]: row[1] for row in connection.execute(asked)} == {
            "application_name": "foreshock",
            "statement_timeout": "0",
        }
        assert connection.scalar(idle) == "15min"
        assert connection.scalar(plans) == "force_custom_plan"
        assert connection.scalar(sa.text("SHOW jit")) == "off"
    url = postgres_engine.url.update_query_dict({"application_name": "mine"})
    named = open_database(url.render_as_string(hide_password=False))
    apart = open_apart(named)
    with apart.connect() as connection:
        assert {row[0]: row[1] for row in connection.execute(asked)} == {
            "application_name": "mine",
            "statement_timeout": "2000",
        }
    apart.dispose()
    named.dispose()


@pytest.mark.integration
def test_a_database_that_is_away_is_told_from_a_fault_of_ours(postgres_engine: sa.Engine) -> None:
    """Cut connections, used up pools, locks that are not to be had; no wrong statement. Afterwards it works again."""
    with pytest.raises(DBAPIError) as cut, postgres_engine.connect() as connection:
        connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))
    apart = open_apart(postgres_engine)
    apart.pool._timeout = 0  # type: ignore[attr-defined]  # nobody waits here
    with apart.connect(), pytest.raises(SQLAlchemyError) as used_up:
        apart.connect()
    apart.dispose()
    with pytest.raises(DBAPIError) as locked, postgres_engine.begin() as one, postgres_engine.begin() as other:
        one.execute(sa.text("LOCK TABLE nodes"))
        other.execute(sa.text("SET LOCAL lock_timeout = 1"))
        other.execute(sa.text("SELECT FROM nodes"))
    for caught in (cut, used_up, locked):
        assert is_away(caught.value)
    with pytest.raises(DBAPIError) as wrong, postgres_engine.connect() as connection:
        connection.execute(sa.text("SELECT no_such_column FROM nodes"))
    assert not is_away(wrong.value)
    assert not is_away(ValueError("x"))
    with postgres_engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT 1")) == 1


@pytest.mark.integration
@pytest.mark.parametrize("read", [0, 10])
def test_the_cursor_of_a_lost_connection_is_closed(postgres_engine: sa.Engine, read: int) -> None:
    """Whether it is lost before the first row or after some: psycopg warns of one that is forgotten open."""
    seen: list[Any] = []
    sa.event.listen(postgres_engine, "before_cursor_execute", lambda _, cursor, *others: seen.append(cursor))
    rows = sa.text("SELECT generate_series(1, 100)").execution_options(yield_per=10)
    with postgres_engine.connect() as connection, postgres_engine.connect() as other:
        end = sa.text(f"SELECT pg_terminate_backend({connection.scalar(sa.text('SELECT pg_backend_pid()'))}, 60000)")
        with pytest.raises(DBAPIError) as caught:
            if not read:
                assert other.scalar(end)
            found = connection.execute(rows)
            assert len(found.fetchmany(read)) == read
            assert other.scalar(end)
            found.all()
    assert caught.value.connection_invalidated
    assert [cursor.closed for cursor in seen if isinstance(cursor, psycopg.ServerCursor)] == [True]


def test_a_locked_sqlite_is_away(tmp_path: Path) -> None:
    """It says so once the busy timeout is over."""
    engine = open_database(f"sqlite:///{tmp_path / 'x.db'}")
    migrate(engine)
    with writing(engine).begin(), pytest.raises(DBAPIError) as caught, engine.connect() as other:
        other.exec_driver_sql("PRAGMA busy_timeout = 1")
        other.execute(sa.text("DELETE FROM nodes"))
    assert is_away(caught.value)
    engine.dispose()

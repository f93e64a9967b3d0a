"""Opening a database: which URLs, and how SQLite is set."""

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from store.database import DatabaseError, migrate, newest_revision, open_database, revision, writing


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
        assert begun.wait(10)
    thread.join(60)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM nodes").scalar() == 2


def test_an_in_memory_database_works_for_one_connection() -> None:
    """For trying things out."""
    engine = open_database("sqlite://")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()

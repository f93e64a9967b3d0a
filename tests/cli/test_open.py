"""Opening the database that a command names: what is wrong with it, and what to do."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cli.console.errors import Failure
from cli.console.store import open_store
from cli.main import foreshock
from store.database.connections import newest_revision, revision
from store.database.integrity import remedy


def refused(url: str, create: bool = False) -> str:
    """The sentence with which a URL is refused."""
    with pytest.raises(Failure) as caught:
        open_store(url, create)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message.strip()
    return caught.value.message


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nonsense", "'nonsense' is no database URL: use sqlite:///PATH or postgresql+psycopg://..."),
        ("", "'' is no database URL"),
        ("mysql://host/db", "mysql is not supported: use sqlite:///PATH"),
        ("oracle://host/db", "oracle is not supported"),
        ("sqlite:////nowhere/at/all/x.db", "/nowhere/at/all is no folder: create it first"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_with_the_remedy(url: str, sentence: str) -> None:
    """In one sentence."""
    assert sentence in refused(url)


def test_a_database_without_our_schema_asks_for_a_migration(tmp_path: Path) -> None:
    """The command to run is in the sentence, with this very URL."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    (tmp_path / "x.db").touch()
    told = refused(url)
    assert "is at nothing, this program needs" in told
    assert told.endswith(f"run `foreshock db migrate --db {url}`")


@pytest.mark.parametrize("command", [["hints", "list"], ["outages"], ["doctor"], ["backtest"]])
def test_a_name_that_no_file_has_makes_no_database(tmp_path: Path, command: list[str]) -> None:
    """Whatever only reads says so, with what would make one."""
    path = tmp_path / "typo.db"
    done = CliRunner().invoke(foreshock, [*command, "--db", f"sqlite:///{path}"])
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    assert f"there is no file {path}: correct --db, or make one with `foreshock db migrate --db " in done.output
    assert not path.exists()


def test_a_file_that_may_not_be_written_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself only says that it cannot, and reading takes a lock too."""
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("x.db") as plain:
        plain.execute("CREATE TABLE t (x)")
    told = refused("sqlite:///file:x.db?mode=ro&uri=true")
    assert "the SQLite file cannot be written: attempt to write a readonly database: run this as the user" in told


def test_a_write_to_a_file_that_may_not_be_written_is_told_with_the_remedy(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it could be opened."""
    file = Path(str(engine.url.database))
    monkeypatch.chdir(file.parent)
    url = f"sqlite:///file:{file.name}?mode=ro&uri=true"
    done = CliRunner().invoke(foreshock, ["hints", "stop", "--reason", "x", "--db", url])
    assert done.exit_code == 2
    assert "the SQLite file cannot be written" in done.output


def test_a_schema_of_another_release_is_not_read(engine: sa.Engine) -> None:
    """It is at a revision that this program does not know as the newest."""
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0000'"))
    assert "is at 0000, this program needs" in refused(str(engine.url))


@pytest.mark.parametrize("command", [["serve"], ["db", "migrate"], ["outages"], ["doctor"]])
def test_a_database_of_a_newer_program_asks_for_that_program(engine: sa.Engine, command: list[str]) -> None:
    """In a sentence, whichever command opens it; a migration could not help, and the database stays as it is."""
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    done = CliRunner().invoke(foreshock, [*command, "--db", str(engine.url)])
    told = " ".join(done.output.split())
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    assert f"is at 9999, newer than this program, which needs {newest_revision()}: install the newer program" in told
    assert "db migrate" not in told
    assert revision(engine) == "9999"


def test_creating_makes_the_schema_and_may_be_done_again(tmp_path: Path) -> None:
    """A new file, then the same file."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    for _ in range(2):
        engine = open_store(url, create=True)
        assert revision(engine) == newest_revision()
        engine.dispose()
    assert open_store(url).url.database == str(tmp_path / "x.db")


@pytest.mark.parametrize("create", [False, True])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, create: bool) -> None:
    """Someone else's file is not touched."""
    path = tmp_path / "x.db"
    path.write_bytes(b"certainly no database, but long enough to have a header" * 40)
    before = path.read_bytes()
    told = refused(f"sqlite:///{path}", create)
    assert f"cannot open sqlite:///{path}: " in told
    assert "the SQLite file is damaged: file is not a database: correct --db where it never was one; else stop" in told
    assert path.read_bytes() == before


@pytest.mark.parametrize("create", [False, True])
def test_a_folder_is_no_database(tmp_path: Path, create: bool) -> None:
    """In the words of the program, with the remedy."""
    told = refused(f"sqlite:///{tmp_path}", create)
    assert told == f"{tmp_path} is a folder: name the file in it, sqlite:///PATH/NAME.db"


def test_a_file_that_another_user_keeps_to_himself_has_a_remedy() -> None:
    """What SQLite says of it is `unable to open database file`."""
    told = remedy(sqlite3.OperationalError("unable to open database file"))
    assert told is not None and "run this as the user whom the file and its folder belong to, or correct --db" in told


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    """Nothing listens on port 1; what goes into logs holds no secret."""
    told = refused("postgresql+psycopg://me:hunter2@127.0.0.1:1/foreshock")
    assert "cannot open postgresql+psycopg://me:" in told
    assert "127.0.0.1" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("command", "module"),
    [("score", "predict"), ("links", "links"), ("demo", "demo")],
)
def test_no_sentence_of_a_command_tells_the_password(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    """Sentences go into logs, and people paste them."""
    monkeypatch.setattr(f"cli.commands.{module}.open_store", lambda *_, **__: engine)
    monkeypatch.setattr("store.events.event_pages.newest_time", lambda _: datetime(2025, 3, 1, tzinfo=UTC))
    found = CliRunner().invoke(foreshock, [command, "--db", "postgresql+psycopg://me:hunter2@db/foreshock"])
    assert found.exit_code == 2
    assert "data" in found.stderr
    assert "postgresql+psycopg://me:" in found.stderr
    assert "hunter2" not in found.stderr

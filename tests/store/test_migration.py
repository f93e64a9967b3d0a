"""Migrations: a database with rows goes on to the newest revision, and of several programs at once one works."""

import shutil
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from real.postgres import Postgres

from store.database import connections
from store.database.connections import migrate, newest_revision, open_database, revision

NEXT = '''"""A column that the next release adds."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{newest}"


def upgrade() -> None:
    """Add it."""
    op.add_column("nodes", sa.Column("row", sa.Text, server_default="none"))
'''


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The program as it is after one revision more."""
    folder = tmp_path / "migrations"
    shutil.copytree(str(resources.files("store").joinpath("migrations")), folder)
    (folder / "versions" / "9999_next.py").write_text(NEXT.format(newest=newest_revision()))
    monkeypatch.setattr(connections, "_migrations", lambda: folder)
    newest_revision.cache_clear()
    yield
    newest_revision.cache_clear()


def test_the_newest_revision_is_alembics() -> None:
    """It is read off the names of files; each is that of the revision in it."""
    scripts = ScriptDirectory.from_config(connections._config())
    assert newest_revision() == scripts.get_current_head()
    assert all(Path(script.path).name[:5] == f"{script.revision}_" for script in scripts.walk_revisions())


def test_a_database_of_the_release_before_is_brought_to_the_next_with_its_rows(
    any_engine: sa.Engine, request: pytest.FixtureRequest
) -> None:
    """The next revision alone is run: its column is there for the rows of before."""
    with any_engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO nodes (node) VALUES ('gpu-017')"))
    before = revision(any_engine)
    request.getfixturevalue("next_release")
    assert revision(any_engine) == before != newest_revision()
    migrate(any_engine)
    assert revision(any_engine) == newest_revision() == "9999"
    with any_engine.connect() as connection:
        assert connection.execute(sa.text('SELECT node, "row" FROM nodes')).all() == [("gpu-017", "none")]


@pytest.mark.integration
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

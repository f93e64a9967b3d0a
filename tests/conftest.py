"""What every test may ask for."""

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from depth import PROFILE, deepen
from distribution import (  # six of them are hooks
    arrange,
    pytest_collection_finish,  # noqa: F401
    pytest_configure_node,  # noqa: F401
    pytest_runtest_teardown,  # noqa: F401
    pytest_unconfigure,  # noqa: F401
    pytest_xdist_auto_num_workers,  # noqa: F401
    pytest_xdist_make_scheduler,  # noqa: F401
    shared,
)
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from real.kubernetes import Kubernetes, kubernetes
from real.postgres import Postgres, postgres
from real.reused_database import MigratedDatabases

from api.edge import admission
from store.database.connections import migrate, open_database, writing
from store.tables import schema

# A parameter of tests that run on PostgreSQL too; each process of a parallel run that has such a test has a server.
ON_POSTGRES = pytest.param("postgresql", marks=pytest.mark.integration)

# A loaded machine makes no test fail: neither examples nor their making are timed. A failure prints what reproduces it;
# here its example is kept in .hypothesis besides, and runs first until it passes.
settings.register_profile(
    "patient", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# Other examples each time, even where hypothesis sees that it runs in CI and would draw the same ones.
settings.register_profile(PROFILE, settings.get_profile("patient"), derandomize=False)
# Conftest is read before the option --hypothesis-profile is obeyed, so that this is no more than the default.
settings.load_profile("patient")

# As many processes run as there are cores and more: threads of arithmetic that wait for one another cost a fifth of a
# training's processor time here, and double its duration. What tests start inherits it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A server in a test's own process stands still where the machine does; real servers keep their own limit.
admission._MOST_BEHIND_S = 60.0

# Tests make and remove thousands of small databases. Where memory has a file system with room for them (and for
# programs: some containers forbid those there) nobody waits for a disk, and a tenth of the processor time is saved.
_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own there
_ENOUGH_BYTES = 6 << 30


def _is_fit(folder: Path) -> bool:
    """Whether temporary files may be kept here."""
    if not os.access(folder, os.W_OK):
        return False
    kind = os.statvfs(folder)
    return not kind.f_flag & os.ST_NOEXEC and kind.f_bavail * kind.f_frsize >= _ENOUGH_BYTES


if "TMPDIR" not in os.environ and _is_fit(_MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)  # what tests start inherits it

# A server without tokens answers to the names of the loopback alone (api/edge/hosts.py): tests ask for one of them.
assert TestClient.__init__.__defaults__ is not None
TestClient.__init__.__defaults__ = ("http://127.0.0.1:10870", *TestClient.__init__.__defaults__[1:])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: no search for garbage stops at it, neither now nor in any test.

    Nor is garbage looked for as often as by default: of a run's processor time that took a thirtieth.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`--hypothesis-profile=deep` (make deep) runs each property with a hundred times its examples."""
    deepen(items)
    arrange(items)


def prepare(engine: sa.Engine) -> None:
    """Migrate a fresh database; its control group is the same in every run, and in no test's way."""
    migrate(engine)
    with writing(engine).begin() as connection:
        connection.execute(schema.keys.insert().values(name="control", key=b"the same in every run".ljust(32)))


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database that was migrated once: a copy is made in a fiftieth of a migration's time."""
    file = tmp_path_factory.mktemp("migrated") / "foreshock.db"
    engine = open_database(f"sqlite:///{file}")
    prepare(engine)
    engine.dispose()  # the last connection moves the log into the file
    return file


@pytest.fixture
def engine(tmp_path: Path, migrated_file: Path) -> Iterator[sa.Engine]:
    """A fresh SQLite database, migrated."""
    engine = open_database(f"sqlite:///{shutil.copyfile(migrated_file, tmp_path / 'foreshock.db')}")
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real PostgreSQL, for the whole run; each process of a parallel run has one, so that none may grow large."""
    # Nobody copies its log, and no database of it lives long: what keeps a real one well would be in vain.
    idle = {"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "checkpoint_timeout": "1h"}
    with postgres(settings={"max_wal_size": "256MB", **idle}) as server:
        yield server


@pytest.fixture(scope="module")
def kubernetes_cluster(request: pytest.FixtureRequest) -> Kubernetes:
    """A real Kubernetes, for the tests of one group, xdist_group("kubernetes"): it ends with the last of them.

    Idle, it would take a tenth of a processor for the rest of the run.
    """
    return shared(request.config, "kubernetes", kubernetes)


@pytest.fixture(scope="session")
def migrated_databases(postgres_server: Postgres) -> MigratedDatabases:
    """PostgreSQL databases that are migrated once, for one test after another."""

    def migrated(url: str) -> None:
        engine = open_database(url)
        prepare(engine)
        engine.dispose()  # one that is in use cannot be copied

    return MigratedDatabases(postgres_server, migrated)


@pytest.fixture
def postgres_engine(migrated_databases: MigratedDatabases) -> Iterator[sa.Engine]:
    """A fresh PostgreSQL database, migrated."""
    engine = open_database(migrated_databases.take())
    yield engine
    engine.dispose()
    assert engine.url.database is not None
    migrated_databases.give_back(engine.url.database)


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def any_engine(request: pytest.FixtureRequest) -> sa.Engine:
    """A fresh database of either kind, migrated."""
    found: sa.Engine = request.getfixturevalue("engine" if request.param == "sqlite" else "postgres_engine")
    return found

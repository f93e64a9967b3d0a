"""Connections to SQLite and PostgreSQL: opening, migration, and transactions that write.

    engine = open_database("sqlite:///foreshock.db")     # WAL, one machine; or postgresql+psycopg://..., a cluster
    migrate(engine)
    transact(engine, lambda connection: append_events(connection, events, received))

SQLite has one writer: writers of a process take turns. PostgreSQL may end a transaction for the sake of another:
`transact` then runs it again.
"""

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

if TYPE_CHECKING:  # a database that is at the newest revision needs none of it, and it takes 0.12 s to load
    from alembic.config import Config

BUSY_TIMEOUT_S = 30.0
# A server process: 25 connections at most, so that three fit into PostgreSQL's own limit of 100. Who finds none free
# waits, and then is told to come again: more connections would make a busy database slower, not faster.
POOL = {"pool_size": 10, "max_overflow": 15, "pool_timeout": 5, "pool_recycle": 1800}
# A client that died between two statements of a transaction holds its locks no longer than this.
IDLE_IN_TRANSACTION_S = 900
# A host that vanished is noticed within half a minute, by either end. Seconds, but for tcp_user_timeout.
_NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_PASSWORD = re.compile(r"(://[^:/@]*):.*@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&]*")
_MIGRATION_LOCK = 7_301_003
_MIGRATION_WAIT_S = 3600.0


class DatabaseError(ValueError):
    """A database that cannot be used; the message says what to do about it."""


def masked(url: str) -> str:
    """A URL as it may be printed: without its passwords, even where it is none that can be read."""
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def open_database(url: str, create: bool = True) -> sa.Engine:
    """An engine for the URL. SQLite is set to WAL with a busy timeout; nothing is created but the file.

    Raises:
        DatabaseError: the URL is malformed or names a database that is not supported, or without `create` no file.
    """
    # Whoever opens a database knows every table: `hint_tables.metadata` holds them from here on.
    from store.tables import run_tables, topology_tables, verdict_tables  # noqa: F401

    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise DatabaseError(
                f"{parsed.get_backend_name()} is not supported: use sqlite:///PATH or postgresql+psycopg://..."
            )
        if parsed.get_backend_name() == "postgresql":
            return _open_postgres(parsed, POOL)
        if parsed.database and parsed.database != ":memory:" and not Path(parsed.database).parent.is_dir():
            raise DatabaseError(f"{Path(parsed.database).parent} is no folder: create it first")
        if "?" in url and not str(parsed.database).startswith("file:"):
            raise DatabaseError("an SQLite file's name ends before '?': use sqlite:///PATH without one")
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S})
    except (ArgumentError, NoSuchModuleError) as error:
        raise DatabaseError(
            f"{masked(url)!r} is no database URL: use sqlite:///PATH or postgresql+psycopg://..."
        ) from error
    if parsed.database and parsed.database != ":memory:" and not parsed.database.startswith("file:"):
        if Path(parsed.database).is_dir():
            raise DatabaseError(f"{parsed.database} is a folder: name the file in it, sqlite:///PATH/NAME.db")
        if create:
            _make_private(Path(parsed.database))
        elif not Path(parsed.database).exists():
            migrate_it = f"`foreshock db migrate --db {masked(url)}`"
            raise DatabaseError(f"there is no file {parsed.database}: correct --db, or make one with {migrate_it}")
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_private(file: Path) -> None:
    """A new database is its owner's alone, and so are the files that SQLite lays beside it, which take its mode."""
    with suppress(OSError):  # it is there; or cannot be made, which SQLite then says
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def open_apart(engine: sa.Engine) -> sa.Engine:
    """The same database over one connection of its own, which no busy pool keeps waiting; for short statements."""
    if engine.dialect.name == "postgresql":
        return _open_postgres(engine.url, {"pool_size": 1, "max_overflow": 0, "pool_timeout": 2}, statement_s=2)
    return open_database(engine.url.render_as_string(hide_password=False))


def _open_postgres(url: sa.URL, pool: Mapping[str, int], statement_s: int = 0) -> sa.Engine:
    """Settings of the URL win over these, and so do those of PGOPTIONS."""
    limits = f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_S}s -c statement_timeout={statement_s}s"
    # A plan for any values is one for every day: PostgreSQL tries one on the sixth call, and locks all of them.
    limits += " -c plan_cache_mode=force_custom_plan"
    # What is compiled is compiled for each day: of a year that takes 20 s, where the query itself takes 4.
    limits += " -c jit=off"
    limits += " " + os.environ.get("PGOPTIONS", "")
    settings = {"application_name": "foreshock", "options": limits, **_NETWORK}
    given = {name: value for name, value in settings.items() if name not in url.query}
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args=given, **pool)
    sa.event.listen(engine, "handle_error", _close_cursor)
    return engine


def _close_cursor(context: sa.ExceptionContext) -> None:
    # SQLAlchemy leaves the cursor of a lost connection open, and psycopg warns when that is collected. `context.cursor`
    # is documented, but never set.
    cursor = getattr(context.execution_context, "cursor", None)
    if context.is_disconnect and cursor is not None:
        with suppress(context.dialect.loaded_dbapi.Error):
            cursor.close()


def is_away(error: BaseException) -> bool:
    """Whether an error says that the database cannot be used just now: try again later, nothing is wrong with the call.

    True for a server that is gone, restarting, full or out of connections, for a pool that is used up, a lock or
    statement that timed out, and an SQLite file that is locked or whose disk is full. False for a fault in the
    statement or its values.
    """
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, OperationalError | InterfaceError | PoolTimeoutError)


def is_of_the_rows(error: Exception) -> bool:
    """Whether what is to be written, or is stored, is to blame, and not the database or its schema."""
    if isinstance(error, DataError | IntegrityError):
        return True
    if isinstance(error, StatementError) and not isinstance(error, DBAPIError):  # no statement was made of the values
        return True
    return not isinstance(error, SQLAlchemyError | OSError | MemoryError)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy says BEGIN itself, below
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    # IMMEDIATE where the caller means to write: a read that turns into a write may not wait for the lock.
    mode = "IMMEDIATE" if connection.get_execution_options().get("writes") else "DEFERRED"
    connection.exec_driver_sql(f"BEGIN {mode}")


def writing(engine: sa.Engine) -> sa.Engine:
    """The same database, for transactions that write: `with writing(engine).begin() as connection`."""
    return engine.execution_options(writes=True)


def migrate(engine: sa.Engine) -> None:
    """Bring the schema to the newest revision; idempotent, and of several that call it at once one works.

    Raises:
        DatabaseError: another process has been migrating this database for `_MIGRATION_WAIT_S`, or a newer program did.
    """
    at = revision(engine)
    if at == newest_revision():
        return
    if (why := too_new(at)) is not None:
        raise DatabaseError(why)
    config = _config()
    if engine.dialect.name != "postgresql":
        with writing(engine).begin() as connection:
            _upgrade(config, connection)
        return
    with engine.connect() as plain:
        # Asked for again and again rather than waited for: who waits in a statement holds up an index in the making.
        guard = plain.execution_options(isolation_level="AUTOCOMMIT")
        deadline = time.monotonic() + _MIGRATION_WAIT_S
        while not guard.scalar(sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": _MIGRATION_LOCK}):
            if time.monotonic() > deadline:
                raise DatabaseError("another process is migrating this database: wait for it, then try again")
            time.sleep(0.1)
        try:
            with engine.connect() as connection:
                _upgrade(config, connection)
        finally:
            guard.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})


def _upgrade(config: "Config", connection: sa.Connection) -> None:
    from alembic import command

    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def revision(engine: sa.Engine) -> str | None:
    """The schema revision that the database is at; None before the first migration."""
    with engine.connect() as connection:
        return revision_of(connection)


def revision_of(connection: sa.Connection) -> str | None:
    """The same over a connection."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return found


@cache
def newest_revision() -> str:
    """The schema revision that this program needs: a migration's file begins with its revision."""
    return max(path.name[:4] for path in _migrations().joinpath("versions").iterdir() if path.name[:4].isdigit())


def too_new(at: str | None) -> str | None:
    """What an operator does about a database whose revision this program does not know yet; None where it is older."""
    if at is None or at <= newest_revision():
        return None
    return (
        f"the schema of this database is at {at}, newer than this program, which needs {newest_revision()}: "
        "install the newer program"
    )


def _migrations() -> Traversable:
    return resources.files("store").joinpath("migrations")


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations()))
    return config


# serialization_failure, deadlock_detected: nothing was written. Source: PostgreSQL 15, appendix A.
_AGAIN = ("40001", "40P01")
TRIES = 4

T = TypeVar("T")

# SQLite has one writer, and who finds it busy sleeps up to a tenth of a second before asking again.
# Within a process the next one is woken at once.
_TURNS: "weakref.WeakKeyDictionary[sa.Dialect, threading.Lock]" = weakref.WeakKeyDictionary()


@contextmanager
def write_turn(engine: sa.Engine) -> Iterator[None]:
    """The turn of one of this process's writers: who has it may lend it to a process that writes in its stead."""
    turn = _TURNS.setdefault(engine.dialect, threading.Lock()) if engine.dialect.name == "sqlite" else nullcontext()
    with turn:
        yield


@contextmanager
def in_turn(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that writes."""
    with write_turn(engine), writing(engine).begin() as connection:
        yield connection


def transact(engine: sa.Engine, work: Callable[[sa.Connection], T]) -> T:
    """Run `work` in one transaction; up to four times, while it is only that another one was preferred.

    Raises:
        SQLAlchemyError: anything else that went wrong; nothing was written.
    """
    for left in reversed(range(TRIES)):
        try:
            with in_turn(engine) as connection:
                return work(connection)
        except DBAPIError as error:
            if not left or getattr(error.orig, "sqlstate", None) not in _AGAIN:
                raise
    raise AssertionError("the last try returns or raises")

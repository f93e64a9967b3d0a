"""A real PostgreSQL: its own cluster in a temporary folder, on a unix socket alone.

with postgres() as server:
    engine = open_database(server.new_database())
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from real.programs import bound, need_file, stop, wait_for

_UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `folder` holds its data and its socket."""

    folder: Path
    bin: Path

    def url(self, database: str = "postgres") -> str:
        """The URL of a database, for SQLAlchemy."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def dsn(self, database: str = "postgres") -> str:
        """The same for libpq."""
        return f"host={self.folder} user=postgres dbname={database}"

    def new_database(self, copied: str = "template1") -> str:
        """The URL of a fresh database: an empty one, or a copy."""
        return self.create(f"test_{secrets.token_hex(6)}", copied)

    def create(self, name: str, copied: str = "template1") -> str:
        """The URL of a new database of this name."""
        with self.connection() as connection:
            made, model = sql.Identifier(name), sql.Identifier(copied)
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(made, model))
        return self.url(name)

    def drop(self, name: str) -> None:
        """Remove a database; one that somebody is still connected to stays."""
        with self.connection() as connection, suppress(psycopg.errors.ObjectInUse):
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))

    def connection(self) -> psycopg.Connection[Any]:
        """To the server itself, for statements that stand in no transaction."""
        return psycopg.connect(self.dsn(), autocommit=True)


@contextmanager
def postgres(
    fsync: bool = False, folder: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Postgres]:
    """A server of its own, gone with its data at the end. It refuses to run as root, so root lends it another user.

    Args:
        folder: keeps the data there instead, and finds them again; a short path that every user may enter.
        settings: more of the server's own settings.
    """
    binaries = need_file("usr/lib/postgresql/*/bin/postgres", "postgresql").parent
    user = _unprivileged()
    keep = folder is not None
    # Not pytest's tmp_path: that is closed to other users, and too long for a socket's name.
    folder = Path(tempfile.mkdtemp(prefix="fs-pg-")) if folder is None else folder
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    if user is not None:
        shutil.chown(folder, user)
    try:
        if not (folder / "data").exists():
            _initialise(binaries, folder, user)
        with _running(binaries, folder, user, {**({} if fsync else _UNSAFE), **(settings or {})}):
            yield Postgres(folder, binaries)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> str | None:
    """The user to run as: this one, unless it is root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}


def _initialise(binaries: Path, folder: Path, user: str | None) -> None:
    command = [binaries / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    done = subprocess.run(command, user=user, env=_environment(), cwd=folder, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed: {done.stderr.decode()[-500:]}")


@contextmanager
def _running(binaries: Path, folder: Path, user: str | None, chosen: Mapping[str, str]) -> Iterator[None]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "shared_buffers": "128MB",
        "max_wal_size": "2GB",
        **chosen,
    }
    command = [str(binaries / "postgres"), "-D", str(folder / "data")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(bound(command), user=user, env=_environment(), cwd=folder, stdout=log, stderr=log)
    try:
        ready = [binaries / "pg_isready", "-q", "-h", folder]
        wait_for(
            "PostgreSQL answers",
            lambda: (
                subprocess.run(ready, env=_environment(), check=False).returncode == 0 or process.poll() is not None
            ),
        )
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended: {(folder / 'log').read_text()[-500:]}")
        yield
    finally:
        stop(process, signal.SIGINT)

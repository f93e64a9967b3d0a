"""A PostgreSQL of a fleet: killed and started again over the same data, with fsync."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from real.fleet import Fleet, Program, children
from real.patience import patience
from real.postgres import Postgres, _environment, _initialise, _unprivileged
from real.programs import need_file, wait_for


class FleetPostgres:
    """The server (`program` is its postmaster) and its one database, `foreshock`."""

    def __init__(self, program: Program, server: Postgres) -> None:
        self.program = program
        self.server = server
        self.url = server.url("foreshock")
        self.dsn = server.dsn("foreshock")
        self._orphans: set[int] = set()

    def kill(self) -> None:
        """SIGKILL the postmaster alone: its children see it and end, and the next start recovers."""
        self._orphans.update(children(self.program.pid))
        self.program.kill()

    def kill_backend(self, choose: float) -> bool:
        """SIGKILL one of the processes that serve a client (`choose` from 0 to 1): the postmaster restarts them all."""
        found = [pid for pid in children(self.program.pid) if b"foreshock" in _command_line(pid)]
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(found[int(choose * len(found)) % len(found)], signal.SIGKILL)
        return True

    def ready(self) -> bool:
        """Whether it takes connections."""
        command = [str(self.server.bin / "pg_isready"), "-q", "-h", str(self.server.folder)]
        return subprocess.run(command, env=_environment(), check=False).returncode == 0

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """The rows of a query; tried again for minutes while the server starts."""
        until = time.monotonic() + patience(60)
        while True:
            try:
                with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as connection:
                    return connection.execute(query.encode(), values).fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def bury(self) -> None:
        """End what a killed postmaster may have left."""
        for pid in self._orphans:
            with suppress(ProcessLookupError, PermissionError):
                if b"postgres" in _command_line(pid):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def fleet_postgres(fleet: Fleet, **settings: str) -> Iterator[FleetPostgres]:
    """Start one, in a folder of its own that is gone at the end; its log stays with the fleet's."""
    binaries = need_file("usr/lib/postgresql/*/bin/postgres", "postgresql").parent
    user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="fs-pg-"))
    folder.chmod(0o755)
    if user is not None:
        shutil.chown(folder, user)
    try:
        _initialise(binaries, folder, user)
        chosen = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            "shared_buffers": "128MB",
            "max_wal_size": "2GB",
            **settings,
        }
        command = [str(binaries / "postgres"), "-D", str(folder / "data")]
        command += [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        program = Program("postgresql", command, folder / "log", "", user, _environment(), end_signal=signal.SIGINT)
        fleet.add(program)
        found = FleetPostgres(program, Postgres(folder, binaries))
        wait_for("PostgreSQL answers", found.ready)
        create = [str(binaries / "createdb"), "-h", str(folder), "-U", "postgres", "foreshock"]
        subprocess.run(create, check=True, env=_environment(), capture_output=True)
        try:
            yield found
        finally:
            fleet.end()  # before its clients' database is gone
            found.bury()
            shutil.copy(folder / "log", fleet.folder / "postgresql.log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""

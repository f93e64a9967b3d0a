"""Foreshock's own programs, as processes: the server on a free port, and a sidecar that follows a file.

with serve("sqlite:////tmp/x.db", tmp_path) as server, sidecar(server, log, tmp_path) as agent:
    events = server.get("/api/v1/events")
"""

import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from real.patience import patience
from real.preloaded import Started, start
from real.programs import stop, wait_for

from store.database.connections import migrate, open_database


@dataclass(frozen=True, slots=True)
class Running:
    """A program that answers HTTP at `url`."""

    url: str
    pid: int

    def text(self, path: str) -> str:
        """A page."""
        with urlopen(self.url + path, timeout=patience(30)) as reply:
            content: bytes = reply.read()
        return content.decode()

    def get(self, path: str) -> Any:
        """A JSON answer."""
        return json.loads(self.text(path))

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON answer to a body: NDJSON, unless the headers say otherwise."""
        request = Request(
            self.url + path, data=body, headers={"Content-Type": "application/x-ndjson", **(headers or {})}
        )
        with urlopen(request, timeout=patience(120)) as reply:
            return json.loads(reply.read())

    def answers(self, path: str) -> bool:
        """Whether a page is there."""
        try:
            self.text(path)
        except (URLError, OSError):
            return False
        return True


@cache
def _migrated() -> bytes:
    """A new SQLite database, as a server makes it: half a second of each server's start."""
    with TemporaryDirectory() as folder:
        engine = open_database(f"sqlite:///{folder}/new.db")
        migrate(engine)
        engine.dispose()
        return Path(folder, "new.db").read_bytes()


@contextmanager
def serve(database: str, folder: Path, *arguments: str) -> Iterator[Running]:
    """`foreshock serve` over a database, on the loopback; an SQLite file that is not there yet is made migrated."""
    file = Path(database.removeprefix("sqlite:///"))
    if file.is_absolute() and not file.exists():
        file.touch(0o600)
        file.write_bytes(_migrated())
    with _program(["serve", "--db", database, "--port", "0", *arguments], folder / "serve.log") as process:
        log = folder / "serve.log"
        wait_for("the API answers", lambda: "API http" in log.read_text() or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"foreshock serve ended: {log.read_text()[-500:]}")
        line = next(line for line in log.read_text().splitlines() if line.startswith("API http"))
        yield Running(line.removeprefix("API "), process.pid)


@contextmanager
def sidecar(
    server: Running, folder: Path, *sources: str, node: str = "gpu-017", more: Sequence[str] = ()
) -> Iterator[Running]:
    """`foreshock sidecar` with the given sources and more options; its own metrics are at its `url`."""
    port = free_port()
    given = [word for source in sources for word in ("--source", source)]
    command = ["sidecar", "--server", server.url, "--node", node, "--spool", str(folder / "spool"), "--port", str(port)]
    log = folder / "sidecar.log"
    with _program([*command, *given, *more], log) as process:
        running = Running(f"http://127.0.0.1:{port}", process.pid)
        wait_for("the sidecar answers", lambda: running.answers("/metrics") or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"foreshock sidecar ended: {log.read_text()[-500:]}")
        yield running


@contextmanager
def _program(arguments: list[str], log: Path) -> Iterator[Started]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FORESHOCK_")}
    log.write_bytes(b"")
    process = start(arguments, log, environment)
    try:
        yield process
    finally:
        stop(process, signal.SIGTERM)


def free_port() -> int:
    """A port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

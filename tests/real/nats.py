"""A real nats-server with JetStream, on a free port of the loopback; it can be killed, and come back over its folder.

with nats(tmp_path) as queue:
    queue.kill()
    queue.start()
"""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from real.foreshock import free_port
from real.patience import patience
from real.programs import bound, need, stop, wait_for


class Nats:
    """A server over a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._program = need("nats-server", "nats-server")
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [
            self._program,
            "-js",
            "-a",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-sd",
            str(self._folder / "jetstream"),
        ]
        with (self._folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(bound([*command, *self._arguments]), stdout=log, stderr=log)
        process = self._process
        wait_for("nats-server answers", lambda: self._greets() or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"nats-server ended: {(self._folder / 'nats.log').read_text()[-500:]}")

    def kill(self) -> None:
        """As a crash ends it: at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """In good order."""
        if self._process is not None:
            stop(self._process, signal.SIGTERM)

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=patience(1)) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False


@contextmanager
def nats(folder: Path, *arguments: str) -> Iterator[Nats]:
    """A running server."""
    server = Nats(folder, *arguments)
    server.start()
    try:
        yield server
    finally:
        server.end()

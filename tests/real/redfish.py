"""Management controllers of a hall that never was: simhall, an emulator of Redfish with faults, over TLS.

    with simulated_hall(tmp_path) as hall:
        hall.line("node7")                              # "node7 https://localhost:PORT/dev/node7"
        fault = hall.break_("coolant_leak", "node7")
        hall.mend(fault)

It is no dependency of the project: pip brings its one wheel into ~/.cache/foreshock/simhall, by its checksum. It names
Python 3.12 and runs on 3.11 as well. Where it cannot be had `why-not` there says why, and tests are skipped with it.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from real.certificates import Authority
from real.programs import bound, stop, wait_for

VERSION = "0.1.0"
SHA256 = "77e8ee8026bb6dace8dc6e342acdbc3f77a58c2da51ca10a97f01a77ae0f8ed4"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foreshock" / "simhall"
_SERVE = """
import sys, uvicorn
from simhall.golden import build_golden
from simhall.server import create_app
port, certificate, key = sys.argv[1:]
hall = create_app(lambda: build_golden("hall-b", f"https://localhost:{port}"), timeout_sleep_s=3600)
uvicorn.run(hall, host="127.0.0.1", port=int(port), ssl_certfile=certificate, ssl_keyfile=key, log_level="warning")
"""


def simhall() -> Path:
    """The folder that holds the package; the test ends where there is none."""
    folder = _CACHE / VERSION
    if (folder / "simhall").is_dir():
        return folder
    if (_CACHE / "why-not").exists():
        pytest.skip(f"no simhall: {(_CACHE / 'why-not').read_text()}")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as made:
        wanted = Path(made) / "wanted.txt"
        wanted.write_text(f"simhall=={VERSION} --hash=sha256:{SHA256}\n")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--retries=1", "--no-deps", "--only-binary=:all:"]
        words = ["--require-hashes", "--ignore-requires-python", "--target", f"{made}/new", "-r", str(wanted)]
        done = subprocess.run([*pip, *words], check=False, capture_output=True, text=True)
        if done.returncode:
            (_CACHE / "why-not").write_text(f"pip did not bring {VERSION}: {done.stderr[-300:]}")
            pytest.skip(f"no simhall {VERSION} can be had here: {done.stderr[-300:]}")
        if not folder.exists():
            (Path(made) / "new").rename(folder)
    return folder


@dataclass(frozen=True, slots=True)
class Hall:
    """A hall that runs: 18 nodes, node1 to node18."""

    port: int
    authority: Path

    def line(self, node: str, host: str = "localhost") -> str:
        """A node and its controller's address."""
        return f"{node} https://{host}:{self.port}/dev/{node}\n"

    def break_(self, kind: str, node: str, **more: str) -> str:
        """Inject a fault; its id."""
        return str(self.ask("POST", "/sim/faults", {"kind": kind, "node": node, **more})["id"])

    def mend(self, ident: str) -> None:
        """Take a fault away."""
        self.ask("DELETE", f"/sim/faults/{ident}")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request to the emulator's control plane."""
        request = Request(f"https://localhost:{self.port}{path}", method=method)
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        with urlopen(request, data, context=ssl.create_default_context(cafile=self.authority)) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found


@contextmanager
def simulated_hall(folder: Path) -> Iterator[Hall]:
    """The emulator, with a certificate of an authority of its own."""
    package = simhall()
    authority = Authority.make(folder, "hall")
    certificate = authority.sign("controller", "DNS:localhost")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVE, str(port), str(certificate.pem), str(certificate.key)]
    hall = Hall(port, authority.pem)
    with (folder / "hall.log").open("wb") as log:
        environment = {**os.environ, "PYTHONPATH": str(package)}
        process = subprocess.Popen(bound(command), env=environment, stdout=log, stderr=log)
        try:
            wait_for("the hall answers", lambda: _answers(hall, process))
            yield hall
        finally:
            stop(process, signal.SIGTERM, 2.0)


def _answers(hall: Hall, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "the hall has ended: see hall.log"
    try:
        return bool(hall.ask("GET", "/sim/health"))
    except OSError:
        return False

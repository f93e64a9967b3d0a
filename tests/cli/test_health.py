"""`foreshock health` against a server that answers what it is told, and against a real one."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from real.foreshock import free_port, serve

from cli.main import foreshock
from schedulers.slurm.health import judge
from store.database.connections import migrate, open_database, writing
from store.hints.hint_log import save_hint
from store.records.hint import Hint

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "slurm" / "foreshock-health"
NOW = datetime.now(UTC)


def hint(**changes: Any) -> dict[str, Any]:
    """One hint as the API tells it."""
    until = (NOW + timedelta(hours=1)).isoformat()
    whole = {"id": "h-1", "node": "gpu-017", "action": "drain", "state": "confirmed", "valid_until": until}
    return {**whole, "reason": "foreshock: Xid 79", "evidence": {}, "job": None, **changes}


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A server with one answer; yields its address and the paths asked with their tokens."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('authorization')}")
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(url: str, *words: str, environment: Mapping[str, str] | None = None) -> Result:
    """The command's end."""
    return CliRunner().invoke(foreshock, ["health", "--server", url, *words], env=environment)


def told(*hints: dict[str, Any]) -> bytes:
    """A page of hints."""
    return json.dumps({"items": hints, "next_cursor": None}).encode()


def test_a_node_with_a_live_hold_is_unwell(tmp_path: Path) -> None:
    """By the name that slurmd gives, with the token."""
    (tmp_path / "token").write_text("secret\n")
    with answering(told(hint())) as (url, asked):
        result = run(url, "--token-file", str(tmp_path / "token"), environment={"SLURMD_NODENAME": "gpu-017"})
    assert (result.exit_code, result.stdout) == (3, "ERROR:  foreshock:  Xid 79 id=h-1\n")
    assert asked == ["/api/v1/hints?node=gpu-017&limit=50 Bearer secret"]


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "shadow"},
        {"state": "proposed"},
        {"state": "released"},
        {"state": "withdrawn"},
        {"action": "avoid"},
        {"action": "watch"},
        {"action": "requeue", "job": "7"},
        {"job": "7"},
        {"node": "gpu-018"},
        {"evidence": {"control": True}},
        {"valid_until": (NOW - timedelta(seconds=1)).isoformat()},
    ],
    ids=lambda changes: " ".join(name if name == "valid_until" else f"{name} {changes[name]}" for name in changes),
)
def test_what_is_no_live_hold_of_this_node_is_no_fault(changes: dict[str, Any]) -> None:
    """Nothing is printed."""
    with answering(told(hint(**changes))) as (url, _):
        result = run(url, "gpu-017")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"\xff", 200),
        (b"[]", 200),
        (b'{"items": [7]}', 200),
        (told({"node": "gpu-017", "action": "drain"}), 200),
        (told(hint(valid_until="soon")), 200),
        (told(hint()), 500),
        (told(hint()), 401),
    ],
)
def test_an_answer_that_is_none_is_no_fault_of_the_node(body: bytes, status: int) -> None:
    """A word on stderr, exit 0."""
    with answering(body, status) as (url, _):
        result = run(url, "gpu-017")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "nothing is known of gpu-017" in result.stderr


def test_a_hint_is_of_the_node_by_its_short_name_too() -> None:
    """The server tells of it by the name that its inventory has; Slurm is told the name that was asked with."""
    with answering(told(hint())) as (url, asked):
        result = run(url, "gpu-017.cluster.local")
    assert (result.exit_code, len(asked)) == (3, 1)
    assert judge([hint()], "gpu-017.cluster.local", NOW).open.node == "gpu-017.cluster.local"  # type: ignore[union-attr]
    for node, told_of in (("gpu-018.cluster.local", "gpu-017"), ("gpu-017.a", "gpu-017.b"), ("10.0.0.1", "10.0.0.2")):
        assert judge([hint(node=told_of)], node, NOW).open is None
    assert judge([hint(node="gpu-017.cluster.local")], "gpu-017", NOW).open is not None


def test_a_server_that_is_away_is_no_fault_of_the_node() -> None:
    """Nor one that is no address: that is bad usage."""
    assert run(f"http://127.0.0.1:{free_port()}", "gpu-017", "--timeout", "1").exit_code == 0
    assert run("file:///etc/passwd", "gpu-017").exit_code == 2


@pytest.mark.integration
def test_a_real_server_s_hint_is_understood_by_the_script(tmp_path: Path) -> None:
    """With SLURMD_NODENAME alone in its environment, as slurmd starts it."""
    database = f"sqlite:///{tmp_path}/store.db"
    engine = open_database(database)
    migrate(engine)
    live = Hint("h-1", "gpu-017", "cordon", "approved", "foreshock: Xid 79", "foreshock", NOW, NOW + timedelta(hours=1))
    with writing(engine).begin() as connection:
        save_hint(connection, live, NOW, {})
    engine.dispose()
    config = tmp_path / "foreshock.yaml"
    config.write_text(
        "intervals: {policy_s: 0, dispatch_s: 0, score_s: 0}\ninventory: {nodes: 'gpu-[017-018]'}\n", encoding="utf-8"
    )
    with serve(database, tmp_path, "--config", str(config)) as server:
        settings = tmp_path / "health.conf"
        settings.write_text(f"FORESHOCK_SERVER={server.url}\nFORESHOCK={Path(sys.executable).parent}/foreshock\n")
        environment = {"SLURMD_NODENAME": "gpu-017", "FORESHOCK_HEALTH_CONF": str(settings)}
        found = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False)
        other = subprocess.run([SCRIPT], env={**environment, "SLURMD_NODENAME": "gpu-018"}, check=False)
        whole, well, wrong = (run(server.url, name) for name in ("gpu-017.cluster.local", "gpu-018", "gpu-17"))
    assert (found.returncode, found.stdout) == (1, "ERROR:  foreshock:  Xid 79 id=h-1\n"), found.stderr
    assert other.returncode == 0
    assert (whole.exit_code, whole.stdout) == (3, "ERROR:  foreshock:  Xid 79 id=h-1\n")
    assert (well.exit_code, well.output) == (0, "")
    assert (wrong.exit_code, wrong.stdout) == (0, "")
    assert "the server knows no such node" in wrong.stderr
    assert subprocess.run([SCRIPT], env=environment, capture_output=True, check=False).returncode == 0  # it is away
    assert os.access(SCRIPT, os.X_OK)
    settings.write_text("FORESHOCK_SERVER=http://x\nFORESHOCK=/nowhere/foreshock\n")
    assert subprocess.run([SCRIPT], env=environment, capture_output=True, check=False).returncode == 0
    settings.unlink()
    assert subprocess.run([SCRIPT], env=environment, capture_output=True, check=False).returncode == 0

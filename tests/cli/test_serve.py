"""`foreshock serve`, as a real process."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from real.patience import patience

from cli.commands.serve import serve

COMMAND = (sys.executable, "-c", "from cli.main import main; main()", "serve")


@contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address, once it has said so."""
    url = f"sqlite:///{tmp_path / 'served.db'}"
    with subprocess.Popen(
        [*COMMAND, "--db", url, "--port", "0", *options], stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("API http://127.0.0.1:"), line
            yield process, line.removeprefix("API ").strip()
        finally:
            process.kill()


def get(address: str) -> dict[str, object]:
    """What an address answers."""
    with urllib.request.urlopen(address, timeout=patience(10)) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_it_says_where_it_is_answers_and_ends_on_sigterm(tmp_path: Path) -> None:
    """With exit 0, the leases given back."""
    with served(tmp_path) as (process, address):
        assert get(f"{address}/readyz")["status"] == "ok"
        assert get(f"{address}/api/v1/cluster")["mode"] == "shadow"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=patience(30)) == 0


def test_ctrl_c_is_a_good_end_too(tmp_path: Path) -> None:
    """Nothing is printed but the address."""
    with served(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=patience(30)) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_without_a_token_it_listens_on_loopback_alone(tmp_path: Path, host: str) -> None:
    """The sentence says what to do."""
    result = CliRunner().invoke(serve, ["--db", f"sqlite:///{tmp_path / 'x.db'}", "--host", host])
    assert result.exit_code == 2
    assert "FORESHOCK_TOKEN_FILE" in result.output


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything starts."""
    result = CliRunner().invoke(serve, ["--db", f"sqlite:///{tmp_path / 'x.db'}", "--replay-clock", "soon"])
    assert result.exit_code == 2
    assert "--replay-clock" in result.output


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    """One sentence and exit 2, not a trace."""
    with served(tmp_path) as (_, address):
        port = address.rsplit(":", 1)[1]
        url = f"sqlite:///{tmp_path / 'y.db'}"
        done = subprocess.run(
            [*COMMAND, "--db", url, "--port", port], capture_output=True, text=True, timeout=patience(60)
        )
    assert done.returncode == 2
    why = "another program listens there: choose another --port"
    assert done.stderr == f"Error: cannot serve on 127.0.0.1, port {port}: {why}\n"
    assert not (tmp_path / "y.db").exists()


def test_a_changed_policy_is_in_force_without_a_restart(tmp_path: Path) -> None:
    """Within two seconds of the server's own time; a broken one is not, and said; the store knows them all."""
    server, policy = tmp_path / "server.yaml", tmp_path / "policy.yaml"
    server.write_text("policy: policy.yaml\n")
    policy.write_text("version: 1\nmode: shadow\n")
    with served(tmp_path, "--config", str(server)) as (_, address):
        assert get(f"{address}/api/v1/cluster")["mode"] == "shadow"
        wait_for(lambda: len(policies(tmp_path)) == 1)
        replaced(policy, "version: 1\nmode: approve\n")
        wait_for(lambda: get(f"{address}/api/v1/cluster")["mode"] == "approve")
        replaced(policy, "version: 1\nmode: bold\n")
        wait_for(lambda: "bold" in str(get(f"{address}/readyz")["checks"]))
        assert get(f"{address}/readyz")["status"] == "ok"
        assert get(f"{address}/api/v1/cluster")["mode"] == "approve"
        with urllib.request.urlopen(f"{address}/metrics", timeout=patience(10)) as answer:
            page = answer.read().decode()
        assert "foreshock_policy_errors 1.0" in page
        assert "foreshock_policy_stale 1.0" in page
        replaced(policy, "version: 1\nmode: act\n")
        wait_for(lambda: [json.loads(text)["mode"] for text in policies(tmp_path)] == ["shadow", "approve", "act"])


def replaced(path: Path, text: str) -> None:
    """A file changed in one go."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def wait_for(found: Callable[[], bool]) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + patience(60)
    while not found():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def policies(tmp_path: Path) -> list[str]:
    """The texts of the policies that the server wrote down."""
    with sqlite3.connect(f"file:{tmp_path / 'served.db'}?mode=ro", uri=True) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM policies ORDER BY seq")]

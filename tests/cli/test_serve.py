"""`foreshock serve`, as a real process."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.serve import serve

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
    with urllib.request.urlopen(address, timeout=10) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def test_it_says_where_it_is_answers_and_ends_on_sigterm(tmp_path: Path) -> None:
    """With exit 0, the leases given back."""
    with served(tmp_path) as (process, address):
        assert get(f"{address}/readyz")["status"] == "ok"
        assert get(f"{address}/api/v1/cluster")["mode"] == "shadow"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_ctrl_c_is_a_good_end_too(tmp_path: Path) -> None:
    """Nothing is printed but the address."""
    with served(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


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
        done = subprocess.run([*COMMAND, "--db", url, "--port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert port in done.stderr
    assert "Traceback" not in done.stderr

"""`foreshock dashboard`: starts, says where it is, and leaves nothing running."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from real.patience import patience
from real.programs import wait_for

from cli.commands import dashboard as room
from cli.commands.dashboard import DashboardAddress, command, dashboard, running, stop
from cli.console.errors import Failure
from cli.processes.children import free_port

FORESHOCK = Path(sys.executable).with_name("foreshock")


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the address that it printed."""
    process = subprocess.Popen(
        [FORESHOCK, "dashboard", "--server", "http://127.0.0.1:9", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Dashboard http://127.0.0.1:"), line
        yield process, line.split()[1]
    finally:
        process.terminate()
        process.communicate(timeout=patience(30))


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_it_answers_where_it_says_and_takes_its_child_down_with_it(number: int, status: int) -> None:
    """The address works once it is printed; after the signal nothing is left."""
    with started() as (process, url):
        assert httpx2.get(f"{url}/_stcore/health", trust_env=False, timeout=patience(5)).text == "ok"
        assert "<title>Streamlit</title>" in httpx2.get(url, trust_env=False, timeout=patience(5)).text
        child = children_of(process.pid)
        assert len(child) == 1
        process.send_signal(number)
        assert process.wait(timeout=patience(30)) == status
        assert number == signal.SIGKILL or not is_alive(child[0])
        wait_for("the child has ended", lambda: not is_alive(child[0]))


def test_a_child_that_ends_by_itself_ends_the_command_with_a_sentence() -> None:
    """Nobody is told that a dashboard runs which does not."""
    with started() as (process, _):
        os.kill(children_of(process.pid)[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=patience(30))
        assert process.returncode == 2
        assert "Streamlit ended by itself with status -9" in errors


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    """Before anything is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(dashboard, ["--server", "http://127.0.0.1:9", "--port", port])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in result.output
    assert "choose another --port" in result.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--server", "cluster:10870"], "is no address: write http://HOST:PORT"),
        (["--server", "http://127.0.0.1:9", "--token-file", "/nowhere/token"], "does not exist"),
        ([], "--server is missing: write http://HOST:PORT"),
    ],
)
def test_bad_usage_ends_with_status_2(options: list[str], says: str) -> None:
    """And says what is wrong."""
    result = CliRunner().invoke(dashboard, options)
    assert result.exit_code == 2
    assert says in result.output


def test_a_host_open_to_others_is_refused_while_nobody_signs_in() -> None:
    """Whoever reaches the page would act with its token."""
    result = CliRunner().invoke(dashboard, ["--server", "http://127.0.0.1:9", "--port", "0", "--host", "0.0.0.0"])  # noqa: S104  # refused is the point
    assert "have people sign in" in result.output
    assert result.exit_code == 2


def test_a_child_that_ends_at_once_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its status."""
    monkeypatch.setattr(room, "command", lambda _place: [sys.executable, "-c", "raise SystemExit(3)"])
    result = CliRunner().invoke(dashboard, ["--server", "http://127.0.0.1:9", "--port", "0"])
    assert "Streamlit ended with status 3 before it answered" in result.output
    assert result.exit_code == 2


def test_a_child_that_never_answers_is_given_up_on_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the limit."""
    monkeypatch.setattr(room, "command", lambda _place: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(room, "START_S", 0.3)
    seen: list[Any] = []
    monkeypatch.setattr(room, "stop", lambda child: (seen.append(child), stop(child)))
    with pytest.raises(Failure, match="did not answer at"), running(DashboardAddress("http://x", port=free_port())):
        pass
    assert seen[0].returncode == -signal.SIGTERM


def test_a_stubborn_child_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ignores SIGTERM."""
    monkeypatch.setattr(room, "STOP_S", 0.2)
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    stop(child)
    assert child.returncode == -signal.SIGKILL
    stop(child)  # again changes nothing
    child.stdout.close()


def test_the_child_sends_nothing_home_and_shows_no_traceback() -> None:
    """Settings come as flags, the token as a file name."""
    line = command(DashboardAddress("http://api:1", "::1", 8502, Path("/etc/foreshock/token")))
    assert line[1:4] == ["-m", "streamlit", "run"]
    assert Path(line[4]).name == "app.py"
    for flag in (
        "--browser.gatherUsageStats=false",
        "--server.headless=true",
        "--server.fileWatcherType=none",
        "--client.showErrorDetails=none",
        "--server.address=::1",
        "--runner.postScriptGC=false",  # which would search all that fifty sessions hold after each part that is drawn
    ):
        assert flag in line
    assert line[line.index("--") :] == ["--", "--server", "http://api:1", "--token-file", "/etc/foreshock/token"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8501"),
        ("0.0.0.0", "http://127.0.0.1:8501"),  # noqa: S104  # nothing is bound
        ("::", "http://[::1]:8501"),
        ("::1", "http://[::1]:8501"),
        ("ops.example", "http://ops.example:8501"),
    ],
)
def test_the_printed_address_can_be_opened_on_this_machine(host: str, url: str) -> None:
    """0.0.0.0 is no address to open."""
    assert DashboardAddress("http://x", host).url == url


def test_nothing_beside_the_entry_bears_the_name_of_a_room() -> None:
    """Streamlit puts the folder of app.py first on the path: such a name would hide the room."""
    entry = Path(command(DashboardAddress("http://x"))[4])
    rooms = {
        "store",
        "parsers",
        "collectors",
        "diagnosis",
        "goodput",
        "predictor",
        "schedulers",
        "simulator",
        "api",
        "cli",
    }
    assert not {path.stem for path in entry.parent.iterdir()} & rooms

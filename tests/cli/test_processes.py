"""`foreshock serve --processes N`, as real processes over a real PostgreSQL."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from real.fleet import children
from real.foreshock import free_port
from real.patience import patience
from real.postgres import Postgres

from api.server.settings import ApiSettings, RequestLimits
from cli.commands.serve import serve, share_of
from cli.console.errors import Failure
from cli.processes.servers import Member, listen, shown

COMMAND = (sys.executable, "-m", "foreshock", "serve")
PATIENCE_S = patience(120.0)


class Served:
    """A running server of several processes."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, url: str) -> None:
        self.process, self.address, self.url = process, address, url

    def text(self, path: str) -> str:
        """A page."""
        with urllib.request.urlopen(f"{self.address}{path}", timeout=patience(30)) as answer:
            found: bytes = answer.read()
        return found.decode()

    def post(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        """What the server says to events."""
        request = urllib.request.Request(f"{self.address}/api/v1/events", json.dumps(events).encode())
        with urllib.request.urlopen(request, timeout=patience(60)) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def stored(self) -> int:
        """How many events the database holds."""
        url = sa.make_url(self.url)
        with psycopg.connect(host=str(url.query["host"]), user="postgres", dbname=url.database) as connection:
            row = connection.execute("SELECT count(*) FROM events").fetchone()
        return 0 if row is None else int(row[0])

    def members(self) -> list[int]:
        """The process ids of those that serve."""
        return [pid for pid in children(self.process.pid) if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def served(url: str, *options: str) -> Iterator[Served]:
    """The server, once it has said where it is."""
    command = [*COMMAND, "--db", url, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("API http://127.0.0.1:"), line
            yield Served(process, line.removeprefix("API ").strip(), url)
        finally:
            process.terminate()
            process.wait(patience(60))


@pytest.fixture(scope="module")
def pair(postgres_server: Postgres) -> Iterator[Served]:
    """Two processes, for the tests that leave them as they are."""
    with served(postgres_server.new_database(), "--processes", "2") as found:
        yield found


def wait_for(what: Callable[[], Any]) -> Any:
    """What it comes to, once it is something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not come")


def events(count: int, name: str) -> list[dict[str, Any]]:
    """So many events of one node."""
    when = "2025-03-01T04:05:06.000000Z"
    kernel = {"time": when, "node": name, "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
    return [{**kernel, "id": f"{name}-{number}"} for number in range(count)]


def test_sqlite_has_one_process(tmp_path: Path) -> None:
    """One sentence that says what to do; by the environment, too."""
    for options, environ in ((("--processes", "2"), {}), ((), {"FORESHOCK_PROCESSES": "2"})):
        arguments = ["--db", f"sqlite:///{tmp_path / 'x.db'}", *options]
        result = CliRunner(env=environ).invoke(serve, arguments)
        assert result.exit_code == 2
        assert "need PostgreSQL" in result.output
        assert not (tmp_path / "x.db").exists()


def test_a_rate_is_shared_out() -> None:
    """Together they let through what one would; what goes by process stays."""
    limits = RequestLimits(requests_per_s=100.0, bytes_per_s=0.0, max_writes=7)
    shared = share_of(ApiSettings(limits=limits), 4).limits
    assert (shared.requests_per_s, shared.bytes_per_s, shared.max_writes) == (25.0, 0.0, 7)


def test_a_member_is_told_its_place_whole(tmp_path: Path) -> None:
    """Whatever its folder is called."""
    member = Member(1, 4, 7, 9, os.getpid(), tmp_path / "a:b/c d")
    assert Member.read(member.text()) == member


def test_a_member_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    """Before it serves: the kernel tells of a death, not of one that was."""
    first, second = os.pipe()
    try:
        with pytest.raises(SystemExit):
            Member(0, 2, first, second, os.getpid(), tmp_path).take()
    finally:
        os.close(first)
        os.close(second)


def test_an_address_is_shown_as_a_browser_takes_it() -> None:
    """That of IPv6 in brackets; one that is not this machine's is refused in a sentence."""
    for host, begins in (("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")):
        with listen(host, 0, 8) as listener:
            assert shown(listener).startswith(begins)
    with listen("127.0.0.1", 0, 8) as taken, pytest.raises(Failure, match="choose another --port"):
        listen("127.0.0.1", taken.getsockname()[1], 8)


@pytest.mark.integration
class TestPair:
    """Two processes, whatever happens to one of them."""

    def test_both_serve_and_what_comes_twice_is_stored_once(self, pair: Served) -> None:
        """The same bodies at the same time, through either."""
        bodies = [events(20, f"n{number}") for number in range(12)] * 4
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(pair.post, bodies))
        assert sum(answer["accepted"] for answer in answers) == pair.stored() == 240
        assert json.loads(pair.text("/readyz"))["status"] == "ok"

    def test_metrics_tell_of_both(self, pair: Served) -> None:
        """What was accepted, whichever took it; one of them leads."""
        before = pair.stored()
        accepted = pair.post(events(5, "counted"))["accepted"]
        lines = pair.text("/metrics").splitlines()
        counted = [line for line in lines if line.startswith("foreshock_events_accepted_total{")]
        assert sum(float(line.split()[-1]) for line in counted) == before + accepted
        assert {line for line in lines if line.startswith("foreshock_process_up")} == {
            'foreshock_process_up{process="0"} 1.0',
            'foreshock_process_up{process="1"} 1.0',
        }

        def leaders() -> float:
            found = [line for line in pair.text("/metrics").splitlines() if line.startswith("foreshock_leader{")]
            return sum(float(line.split()[-1]) for line in found)

        assert wait_for(leaders) == 1.0

    def test_the_database_is_nobodys_who_lists_processes(self, pair: Served) -> None:
        """Its URL may hold a password."""
        for pid in pair.members():
            assert b"postgresql" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert len(pair.members()) == 2

    def test_a_process_that_dies_is_followed_by_another(self, pair: Served) -> None:
        """The other one serves meanwhile."""
        before = pair.members()
        os.kill(before[0], signal.SIGKILL)
        for number in range(20):
            assert pair.post(events(1, f"meanwhile-{number}"))["accepted"] == 1
        wait_for(lambda: len(set(pair.members()) - set(before)) == 1)
        wait_for(lambda: pair.text("/metrics").count('foreshock_process_up{process="0"} 1.0') == 1)
        wait_for(lambda: pair.text("/metrics").count('foreshock_process_up{process="1"} 1.0') == 1)
        assert before[1] in pair.members()

    def test_sigterm_lets_a_request_end_and_leaves_nothing(self, pair: Served) -> None:
        """The last of the pair: its processes end in order, and the parent's exit is 0."""
        before, members = pair.stored(), pair.members()
        body = json.dumps(events(1, "last")).encode()
        host, port = pair.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=patience(30)) as client:
            head = f"POST /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\nExpect: 100-continue\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            assert client.recv(4096).startswith(b"HTTP/1.1 100")  # its turn has come
            client.sendall(body[:10])
            pair.process.send_signal(signal.SIGTERM)
            wait_for(lambda: _refuses(host, int(port)))
            client.sendall(body[10:])
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert pair.process.wait(patience(60)) == 0
        assert not [pid for pid in members if Path(f"/proc/{pid}").exists()]
        assert pair.stored() == before + 1


@pytest.mark.integration
def test_killing_the_parent_leaves_nothing(postgres_server: Postgres) -> None:
    """kill -9 gives it no time: the kernel asks the others to end."""
    with served(postgres_server.new_database(), "--processes", "2") as server:
        members = server.members()
        assert len(members) == 2
        server.process.kill()
        server.process.wait(patience(30))
        wait_for(lambda: not [pid for pid in members if _runs(pid)])


@pytest.mark.integration
def test_what_keeps_a_process_from_starting_is_said_once_and_ends_all(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    """A rules file that is none; a port that is taken. Exit 2, no trace."""
    url = postgres_server.new_database()
    rules, config = tmp_path / "rules.yaml", tmp_path / "config.yaml"
    rules.write_text("nonsense: [")
    config.write_text(f"rules: {rules}\n")
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        for options, word in ((["--config", str(config)], str(rules)), (["--port", str(port)], str(port))):
            command = [*COMMAND, "--db", url, "--port", "0", *options, "--processes", "2"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == 2
            assert word in done.stderr
            assert "Traceback" not in done.stderr
            assert done.stdout == ""


def _refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=patience(5)).close()
    except ConnectionRefusedError:
        return True
    return False


def _runs(pid: int) -> bool:
    """Whether a process runs; one that its new parent has not buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False

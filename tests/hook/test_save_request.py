"""A training program learns that it should save, over real HTTP."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from foreshock_hook.save_request import SaveRequests
from real.patience import patience

PATIENCE_S = patience(60.0)


class Answers(ThreadingHTTPServer):
    """A server that answers with the hints it is given; `asked` are the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hints: Any = []
        self.body: bytes | None = None
        self.asked: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        """Answer."""
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        body = self.server.body or json.dumps({"items": self.server.hints, "next_cursor": None}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Answers]:
    """A server on loopback."""
    answers = Answers()
    thread = threading.Thread(target=answers.serve_forever, args=(0.01,))
    thread.start()
    yield answers
    answers.shutdown()
    thread.join()
    answers.server_close()


@pytest.fixture
def ask(server: Answers) -> Iterator[Callable[..., SaveRequests]]:
    """Makes one that asks often, and ends it."""
    made: list[SaveRequests] = []

    def make(**more: Any) -> SaveRequests:
        made.append(SaveRequests(more.pop("server", server.address), "llm/70b", every_s=0.01, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def until(met: Callable[[], Any]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def hint(ident: str, action: str = "checkpoint", **evidence: Any) -> dict[str, Any]:
    """A hint as the API tells it."""
    return {"id": ident, "action": action, "node": "n1", "job": "7", "evidence": evidence}


def polled(server: Answers, times: int = 2) -> None:
    """Wait for that many more requests."""
    count = len(server.asked)
    until(lambda: len(server.asked) >= count + times)


def test_each_request_is_told_once(server: Answers, ask: Callable[..., SaveRequests]) -> None:
    """And a new one anew; what it is stands in `hints`."""
    asks = ask()
    polled(server)
    assert not asks.wanted()
    server.hints = [hint("h1")]
    until(asks.wanted)
    polled(server)
    assert not asks.wanted()
    server.hints = [hint("h1"), hint("h2", "swap", spare="n9")]
    until(asks.wanted)
    assert asks.hints[1]["evidence"] == {"spare": "n9"}
    server.hints = []
    until(lambda: asks.hints == [])
    assert not asks.wanted()


def test_it_asks_for_its_run_and_job_with_its_token(
    server: Answers, ask: Callable[..., SaveRequests], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's job where none is named; a token that is changed is read anew."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    (tmp_path / "token").write_text("one\n")
    ask(token_file=str(tmp_path / "token"))
    until(lambda: server.asked)
    assert server.asked[0] == ("/api/v1/runs/llm%2F70b/hints?job=4711", "Bearer one")
    (tmp_path / "token").write_text("two\n")
    until(lambda: server.asked[-1][1] == "Bearer two")
    monkeypatch.delenv("SLURM_JOB_ID")
    ask(job="8")
    until(lambda: ("/api/v1/runs/llm%2F70b/hints?job=8", None) in server.asked)
    ask()
    until(lambda: ("/api/v1/runs/llm%2F70b/hints", None) in server.asked)


def test_what_is_no_request_is_none(server: Answers, ask: Callable[..., SaveRequests]) -> None:
    """A node's own hint, should there be one."""
    asks = ask()
    server.hints = [hint("h1", "cordon")]
    polled(server)
    assert (asks.wanted(), asks.hints) == (False, [])


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"items": [{}]}', b"\xff"])
def test_a_server_that_answers_nonsense_does_no_harm(
    server: Answers, ask: Callable[..., SaveRequests], body: bytes
) -> None:
    """It is counted, and asked again."""
    asks = ask()
    server.body = body
    until(lambda: asks.failures > 1)
    server.body, server.hints = None, [hint("h1")]
    until(asks.wanted)


def test_a_server_that_is_away_does_no_harm(ask: Callable[..., SaveRequests], tmp_path: Path) -> None:
    """Nor a token that cannot be read; only an address that is none is refused at once."""
    for more in ({"server": "http://127.0.0.1:1"}, {"token_file": str(tmp_path / "none")}):
        asks = ask(**more)
        until(lambda asks=asks: asks.failures > 1)
        assert not asks.wanted()
    with pytest.raises(ValueError, match="is no http"):
        ask(server="file:///etc/passwd")

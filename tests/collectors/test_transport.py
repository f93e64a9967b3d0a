"""The HTTP client of the sidecar."""

import socket
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience

from collectors.ship.transport import Backoff, ServerAccess, Transport, retry_after_s

NOW = datetime(2025, 3, 1, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        (None, None),
        ("5", 5.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("1e9", 3600.0),
        ("nan", None),
        ("Sat, 01 Mar 2025 04:00:30 GMT", 30.0),
        ("Sat, 01 Mar 2025 03:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, wait_s: float | None) -> None:
    """At most an hour, never negative; nonsense says nothing."""
    assert retry_after_s(header, NOW) == wait_s


def test_a_connection_is_kept_and_a_closed_one_replaced(recorder: Any) -> None:
    """A server that was restarted between two posts costs no failed post."""
    with closing(Transport(recorder.url, ServerAccess(timeout_s=patience(2)))) as transport:
        assert transport.post("/api/v1/events", [1]).status == 202
        first = transport._connection
        assert transport.post("/api/v1/events", [2]).status == 202
        assert transport._connection is first
        recorder.stop()
        recorder.start()
        assert transport.post("/api/v1/events", [3]).status == 202
    assert recorder.events == [1, 2, 3]


def test_a_prefix_in_the_address_is_kept(recorder: Any) -> None:
    """A server behind a path of a proxy."""
    with closing(Transport(f"{recorder.url}/foreshock/", ServerAccess(timeout_s=patience(2)))) as transport:
        transport.post("/api/v1/events", [])
    assert recorder.requests[0]["path"] == "/foreshock/api/v1/events"


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "https://127.0.0.1:1", "http://no.such.host.invalid"])
def test_an_unreachable_server_is_an_answer(address: str) -> None:
    """Status 0, and why."""
    with closing(Transport(address, ServerAccess(timeout_s=patience(1)))) as transport:
        answer = transport.post("/x", [])
    assert answer.status == 0
    assert "rror: [Errno" in answer.text


def test_a_problem_is_told_by_its_sentence(recorder: Any, tmp_path: Path) -> None:
    """Not as JSON, and of a token with what to do; an empty file sends none."""
    token = tmp_path / "token"
    token.write_text("wrong")
    recorder.answers = [(401, {}, {"type": "about:blank", "detail": "send a known token"})]
    with closing(Transport(recorder.url, ServerAccess(token, patience(5)))) as transport:
        answer = transport.post("/x", [])
        told = "the server denies the token (HTTP 401: send a known token): give one with the scope `ingest`"
        assert answer.why() == told
        token.write_text("\n")
        assert transport.post("/x", []).why() == f"{token} is empty: write the token into it"
    assert len(recorder.requests) == 1


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
def test_a_server_that_talks_nonsense_is_an_answer(said: bytes) -> None:
    """It closes at once, speaks another protocol, or breaks off."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(said)

    threading.Thread(target=serve, daemon=True).start()
    with (
        listener,
        closing(
            Transport(f"http://127.0.0.1:{listener.getsockname()[1]}", ServerAccess(timeout_s=patience(2)))
        ) as transport,
    ):
        assert transport.post("/x", []).status == 0


def test_tls_is_verified(tmp_path: Path, recorder: Any) -> None:
    """A plain server behind an https address fails, and is not talked to in the clear."""
    with closing(Transport(recorder.url.replace("http", "https"), ServerAccess(timeout_s=patience(2)))) as transport:
        answer = transport.post("/x", [])
    assert answer.status == 0
    assert "SSL" in answer.text
    assert recorder.requests == []


def test_a_far_too_long_answer_is_refused(recorder: Any) -> None:
    """It is not the API that answers."""
    recorder.answers = [(200, {}, "x" * 2_000_000)]
    with closing(Transport(recorder.url, ServerAccess(timeout_s=patience(2)))) as transport:
        assert "too long" in transport.post("/x", []).text


def test_waits_double_up_to_a_limit_with_jitter() -> None:
    """Never the same for all, never more than the limit, short again after a success."""
    backoff = Backoff(1, 8)
    waits = [backoff.next_s() for _ in range(6)]
    for wait, step in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert step / 2 <= wait <= step
    backoff.reset()
    assert backoff.next_s() <= 1

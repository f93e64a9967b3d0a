"""A client that never comes to the end of its headers holds no connection for ever."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from real.patience import patience
from uvicorn.server import ServerState

from cli.processes import http_server
from cli.processes.http_server import MOST_HEADER_BYTES, MOST_HEADERS, PatientProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers everything."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server with little patience."""
    monkeypatch.setattr(http_server, "HEADERS_S", patience(0.2))  # a whole request comes within it
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    config = uvicorn.Config(hello, http=PatientProtocol, lifespan="off", log_level="error", timeout_keep_alive=30)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield listener.getsockname()
    server.should_exit = True
    thread.join(patience(10))
    listener.close()


def whole_answer(client: socket.socket) -> bool:
    """Whether an answer comes, read to its end."""
    found = b""
    while not found.endswith(b"ok"):
        part = client.recv(4096)
        if not part:
            return False
        found += part
    return b"200 OK" in found


@pytest.mark.parametrize("before", [False, True], ids=["at first", "behind a good one"])
@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nHost:"])
def test_a_request_that_is_never_whole_ends_the_connection(address: tuple[str, int], sent: bytes, before: bool) -> None:
    """The server closes it."""
    with socket.create_connection(address, timeout=patience(20)) as client:
        if before:
            client.sendall(REQUEST)
            assert whole_answer(client)
        client.sendall(sent)
        assert b"200 OK" not in client.recv(4096)
        assert client.recv(4096) == b""


def test_a_connection_without_a_word_is_closed(address: tuple[str, int]) -> None:
    """It holds a file descriptor."""
    with socket.create_connection(address, timeout=patience(20)) as client:
        assert client.recv(4096) == b""


def test_a_connection_that_rests_between_two_requests_stays(address: tuple[str, int]) -> None:
    """That pause is bounded by keep-alive alone."""
    with socket.create_connection(address, timeout=patience(20)) as client:
        client.sendall(REQUEST)
        assert whole_answer(client)
        threading.Event().wait(2 * http_server.HEADERS_S)  # longer than headers may take
        client.sendall(REQUEST)
        assert whole_answer(client)


def test_headers_without_end_are_refused_long_before_they_fill_memory(address: tuple[str, int]) -> None:
    """The parser would take any length."""
    with socket.create_connection(address, timeout=patience(20)) as client, suppress(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        sent = 0
        while sent < 64 * MOST_HEADER_BYTES:
            sent += client.send(b"X-A: " + b"a" * 1000 + b"\r\n")
    assert sent < 64 * MOST_HEADER_BYTES


@pytest.mark.parametrize(
    "long",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * MOST_HEADER_BYTES + b"\r\n\r\n",
        b"GET /" + b"a" * MOST_HEADER_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * MOST_HEADERS + b"\r\n",
    ],
    ids=["a long one", "a long address", "many"],
)
def test_long_headers_are_refused_though_all_of_them_come_at_once(address: tuple[str, int], long: bytes) -> None:
    """Whole within one read of the socket, they are never unfinished."""
    with socket.create_connection(address, timeout=patience(20)) as client:
        client.sendall(long)
        answer = client.recv(4096)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"too long" in answer + client.recv(4096)


def test_a_client_that_has_hung_up_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop has its request, but has not come to read that it is gone; a client that waits is served."""
    served: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])

    async def meet() -> None:
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(app, http=PatientProtocol, lifespan="off", log_level="critical")
        state = ServerState()
        for path, gone in ((b"/gone", True), (b"/there", False)):
            ours, theirs = socket.socketpair()
            transport, _protocol = await loop.create_connection(asyncio.Protocol, sock=ours)
            met = PatientProtocol(config, state, {})
            met.connection_made(transport)
            if gone:
                theirs.close()
            met.data_received(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await asyncio.gather(*state.tasks)
            assert transport.is_closing() or not gone
            transport.abort()
            met.connection_lost(None)
            theirs.close()

    asyncio.run(meet())
    assert served == ["/there"]

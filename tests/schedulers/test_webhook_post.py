"""How a message travels: one time for all of an attempt, a bounded answer, the proxy that the operator names."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from schedulers.webhooks.post import MAX_ANSWER_BYTES, AddressGuard, ReceiverRoute, WebhookMessage, post
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import Webhook
from store.hints.outbox import Delivery

from .cluster import NOW
from .http_receiver import receiving

SECRET = "whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="
DELIVERY = Delivery("i", "h", "ops", {"type": "x", "data": {}}, 0, NOW)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


@contextmanager
def serving(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that takes one connection and speaks as told; a client that hangs up ends it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                with suppress(OSError):
                    speak(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join()


def drip(text: bytes) -> Callable[[socket.socket], None]:
    """A byte at a time: each comes in time, all of them together do not."""

    def speak(connection: socket.socket) -> None:
        for byte in text:
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    return speak


@pytest.mark.parametrize("text", [HEAD + b"x" * 100, b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 15 + b"\r\n"])
def test_an_answer_that_drips_is_cut_off(text: bytes) -> None:
    """Of the body or of the headers: the other receivers wait meanwhile. It would have been a good one."""
    with serving(drip(text)) as url:
        outcome = Webhook(WebhookSettings("ops", url, SECRET, timeout_s=0.5)).send(DELIVERY, NOW)
    assert (outcome.result, outcome.slow) == ("retry", True)


def test_of_an_endless_answer_the_beginning_is_read() -> None:
    """A receiver that sends a film does not fill our memory."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65_536)

    with serving(speak) as url:
        answer = post(ReceiverRoute(url, AddressGuard(literal=True), 60.0), WebhookMessage(b"{}"))
    assert (answer.status, len(answer.body)) == (200, MAX_ANSWER_BYTES)


def test_a_proxy_is_the_operator_s_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's is not heeded: the guard would look at an address that nobody connects to."""
    with receiving() as proxy, receiving() as receiver:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert Webhook(WebhookSettings("ops", receiver.url, SECRET)).send(DELIVERY, NOW).result == "delivered"
        assert (len(proxy.got), len(receiver.got)) == (0, 1)
        named = f"http://127.0.0.1:{proxy.port}"
        hook = Webhook(WebhookSettings("ops", "http://scheduler.example/hook", SECRET, proxy=named))
        assert hook.send(DELIVERY, NOW).result == "delivered"
        assert proxy.paths == ["http://scheduler.example/hook"]
        assert proxy.got[0][0]["host"] == "scheduler.example"

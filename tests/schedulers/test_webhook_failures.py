"""What a receiver or an address can do wrong; the dispatcher must outlive all of it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from real.patience import patience

from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import Webhook, judge
from store.hints.outbox import Delivery

from .cluster import NOW, hint
from .receivers import Scripted, put, rows_of, turn

SECRET = "whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="


@contextmanager
def speaking(answer: bytes) -> Iterator[str]:
    """A server that takes one request, says just this, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join()


def sent_to(url: str, timeout_s: float = patience(5.0)) -> str:
    """What became of one delivery."""
    delivery = Delivery("i", "h", "ops", {"type": "x", "data": {}}, 0, NOW)
    return Webhook(WebhookSettings("ops", url, SECRET, timeout_s)).send(delivery, NOW).result


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 302 Found\r\nlocation: http://[\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nretry-after: \xff\xfe\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_whatever_a_receiver_says_is_tried_again(answer: bytes) -> None:
    """Silence, another protocol, half an answer, a broken one, a redirect to nowhere."""
    with speaking(answer) as url:
        assert sent_to(url) == "retry"


def test_a_receiver_that_never_answers_costs_its_timeout() -> None:
    """And no more: the delivery is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert sent_to(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.05) == "retry"


@pytest.mark.parametrize(
    "url", ["http://a..b/", "http://" + "a" * 70 + "/", "http://\x00/", "http://ü..x/", "ftp://x/"]
)
def test_an_address_that_nobody_can_reach_is_no_crash(url: str) -> None:
    """One bad address must not keep the other receivers from their hints."""
    assert sent_to(url) == "retry"


def test_a_bad_address_does_not_stop_the_turn(engine: sa.Engine) -> None:
    """The good receiver gets its own."""
    put(engine, hint("a", state="approved"))
    well = Scripted("well")
    bad = Webhook(WebhookSettings("bad", "http://a..b/", SECRET))
    assert sorted(turn(engine, bad, well)) == ["delivered", "retry"]  # type: ignore[arg-type]  # a scheduler as any
    assert {row.scheduler: row.state for row in rows_of(engine)} == {"bad": "owed", "well": "delivered"}


@pytest.mark.parametrize("status", [*range(300, 309), 401, 403, 404, 408, 409, 422, 451, 500, 502, 504, 599])
def test_only_2xx_is_taken_and_only_410_is_final(status: int) -> None:
    """A wrong token or path is an operator's mistake, mended while the hint is still good."""
    assert judge(status, None, NOW).result == "retry"
    assert str(status) in judge(status, None, NOW).detail


def test_a_retry_after_counts_with_errors_alone() -> None:
    """A taken delivery has nothing to wait for."""
    assert judge(200, "120", NOW).retry_after_s == 0.0
    assert judge(410, "120", NOW).retry_after_s == 0.0
    assert judge(503, "120", NOW).retry_after_s == 120.0


def test_a_date_in_another_zone_means_the_same_moment() -> None:
    """Though the standard asks for GMT."""
    east = (NOW + timedelta(minutes=1)).astimezone(timezone(timedelta(hours=5)))
    assert judge(503, east.strftime("%a, %d %b %Y %H:%M:%S %z"), NOW).retry_after_s == 60.0
    assert judge(503, "Sat, 01 Mar 2025 12:01:00", NOW).retry_after_s == 60.0
    assert judge(503, "Sat, 01 Mar 2125 12:01:00 GMT", NOW).retry_after_s == 86_400.0
    assert judge(503, "99", datetime.fromisoformat("2025-03-01T00:00:00Z")).retry_after_s == 99.0

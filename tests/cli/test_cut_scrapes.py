"""A scrape that is cut: the scraper gave up, and the pages that the demo and the sidecar serve go on without a word."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx2
import pytest
from real.patience import patience

from cli.replay import exporter as replay
from cli.replay.clock import ReplayClock
from cli.replay.exporter import exporter
from collectors.agent.metrics_server import MetricsServer
from collectors.metrics import SidecarMetrics
from simulator.simulation import simulate
from simulator.site import SimulationSettings

# More than the sockets between two programs hold: whoever answers waits for the reader.
LARGE = b"# a line of a page\n" * 2_000_000
T0 = datetime(2025, 3, 1, tzinfo=UTC)


@contextmanager
def demo_page(monkeypatch: pytest.MonkeyPatch, page: Callable[[], bytes]) -> Iterator[str]:
    """The demo's exporter."""
    monkeypatch.setattr(replay, "exposition", lambda *_: page().decode())
    cluster = simulate(SimulationSettings(nodes=8, days=20, seed=3, rate_per_1000_node_days=0.01))
    with exporter(cluster, ReplayClock(T0, T0, epoch=T0, speed=1.0)) as url:
        yield url


@contextmanager
def sidecar_page(monkeypatch: pytest.MonkeyPatch, page: Callable[[], bytes]) -> Iterator[str]:
    """The sidecar's own figures."""
    monkeypatch.setattr(SidecarMetrics, "page", lambda _self: page())
    server = MetricsServer(SidecarMetrics(), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.port}/metrics"
    finally:
        server.close()


Page = Callable[[pytest.MonkeyPatch, Callable[[], bytes]], AbstractContextManager[str]]


def cut(url: str, request: bytes, at_least: int) -> None:
    """Send a request, read some of the answer and reset the connection."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=patience(10)) as scrape:
        scrape.sendall(request)
        read = 0
        while read < at_least:
            read += len(scrape.recv(1024))
        # No goodbye: closing sends a reset.
        scrape.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answered() -> None:
    """Wait until no thread of a server answers any more."""
    end = time.monotonic() + patience(10)
    while any("process_request" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < end, "a server still answers"
        time.sleep(0.01)


@pytest.mark.parametrize("serve", [demo_page, sidecar_page])
@pytest.mark.parametrize(
    ("request_", "at_least"), [(b"GET /metrics HTTP/1.1\r\n\r\n", 4096), (b"GET /metr", 0)], ids=["answer", "request"]
)
def test_a_scrape_that_is_cut_prints_nothing_and_the_next_one_is_answered(
    serve: Page, request_: bytes, at_least: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the middle of the answer, or of the request."""
    with serve(monkeypatch, lambda: LARGE) as url:
        for _ in range(3):
            cut(url, request_, at_least)
        answered()
        assert httpx2.get(url, timeout=patience(10)).content == LARGE
        answered()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("serve", [demo_page, sidecar_page])
def test_a_page_that_fails_still_says_why(
    serve: Page, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only a connection that is gone is no news."""

    def broken() -> bytes:
        raise ValueError("no figures")

    with serve(monkeypatch, broken) as url:
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.get(url, timeout=patience(10))
        answered()
    assert "ValueError: no figures" in capfd.readouterr().err

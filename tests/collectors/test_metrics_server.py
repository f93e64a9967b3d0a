"""The sidecar's small server: for scrapers, and for what asks whether it lives and is ready."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from real.patience import patience

from collectors.agent import metrics_server
from collectors.agent.metrics_server import MOST_CONNECTIONS, MetricsServer
from collectors.metrics import SidecarMetrics


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """One without sources."""
    found = MetricsServer(SidecarMetrics(), "127.0.0.1", 0)
    yield found
    found.close()


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_an_idle_sidecar_lives_and_is_ready(server: MetricsServer, path: str) -> None:
    """In the words of the API."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as answer:
        assert json.load(answer)["status"] == "ok"


def test_another_address_is_not_found(server: MetricsServer) -> None:
    """It says where the figures are."""
    with pytest.raises(urllib.error.HTTPError, match="404") as found:
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz")
    assert b"/metrics" in found.value.read()


def test_connections_without_end_take_no_thread_each_and_keep_no_scraper_out(server: MetricsServer) -> None:
    """Any user of a node can open them: half a request each. The oldest make room, and a scrape is answered."""
    before = threading.active_count()
    with ExitStack() as held:
        mine = [
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), patience(10)))
            for _ in range(8 * MOST_CONNECTIONS)
        ]
        for connection in mine[-MOST_CONNECTIONS:]:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=patience(10)) as answer:
            assert b"foreshock_sidecar" in answer.read()
        assert mine[0].recv(1) == b""
        assert threading.active_count() - before < 2 * MOST_CONNECTIONS


def test_a_connection_that_says_nothing_ends(monkeypatch: pytest.MonkeyPatch, server: MetricsServer) -> None:
    """Though nobody else comes."""
    monkeypatch.setattr(metrics_server, "_SILENCE_S", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), patience(10)) as connection:
        connection.sendall(b"GET /metrics")
        assert connection.recv(1) == b""

"""The sidecar's small server: for scrapers, and for what asks whether it lives and is ready."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from collectors.agent.metrics_server import MetricsServer
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

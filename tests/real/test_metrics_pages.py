"""The metrics pages of the server and the sidecar, as real processes, before Prometheus' own judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real.foreshock import Running, serve, sidecar
from real.programs import wait_for
from real.prometheus import check_metrics

pytestmark = pytest.mark.integration

XID = "2025-03-01T04:05:06+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    """A server and a sidecar that has shipped an event to it."""
    log = tmp_path / "kern.log"
    log.write_text(XID)
    with (
        serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path) as server,
        sidecar(server, tmp_path, f"file:{log}:kernel") as agent,
    ):
        wait_for("the event arrives", lambda: bool(server.get("/api/v1/events")["items"]))
        yield server, agent


def test_prometheus_objects_to_nothing(running: tuple[Running, Running]) -> None:
    """Names, units, types and help texts, after something has happened."""
    server, agent = running
    assert server.get("/api/v1/events")["items"][0]["code"] == 79
    assert check_metrics(server.text("/metrics")) == ""
    assert check_metrics(agent.text("/metrics")) == ""


def test_no_series_stands_twice(running: tuple[Running, Running]) -> None:
    """Promtool passes duplicates; Prometheus refuses the scrape."""
    for page in (each.text("/metrics") for each in running):
        series = [line.rsplit(" ", 1)[0] for line in page.splitlines() if line and not line.startswith("#")]
        assert len(series) == len(set(series)) > 10

"""What a source's figures are on the page."""

import pytest

from collectors.collector import CollectorTurn
from collectors.metrics import SidecarMetrics
from store.records.event import Event

EVENT = Event(time=None, node="n1", source="test", kind="test")
TURN = CollectorTurn(events=(EVENT, EVENT), lines=5, errors=2, lost=3)


def value(metrics: SidecarMetrics, name: str, source: str) -> float | None:
    """One sample."""
    return metrics.registry.get_sample_value(f"foreshock_sidecar_{name}", {"source": source})


@pytest.fixture
def metrics() -> SidecarMetrics:
    """Of a sidecar that reads `a` and `b`."""
    metrics = SidecarMetrics()
    metrics.source("a")
    metrics.source("b")
    return metrics


def test_a_source_that_has_given_nothing_is_there_with_zeros(metrics: SidecarMetrics) -> None:
    """What appeared at 1 would be no increase."""
    names = ("lines_total", "events_total", "parse_errors_total", "lost_records_total", "source_failures_total")
    gauges = ("source_up", "source_blocked", "source_stalled", "source_last_event_timestamp_seconds")
    assert [value(metrics, name, "a") for name in (*names, *gauges)] == [0.0] * 9


def test_turns_add_up_and_the_last_event_has_its_time(metrics: SidecarMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its own source; a turn without events leaves the time as it was."""
    monkeypatch.setattr("collectors.metrics.time.time", lambda: 1740801906.5)
    for turn in (TURN, TURN):
        metrics.source("a").count(turn)
    monkeypatch.setattr("collectors.metrics.time.time", lambda: 1740801999.0)
    metrics.source("a").count(CollectorTurn(lines=1))
    assert value(metrics, "lines_total", "a") == 11
    assert value(metrics, "events_total", "a") == 4
    assert value(metrics, "parse_errors_total", "a") == 4
    assert value(metrics, "lost_records_total", "a") == 6
    assert value(metrics, "source_last_event_timestamp_seconds", "a") == 1740801906.5
    assert value(metrics, "lines_total", "b") == 0


def test_how_it_is_shows_at_once(metrics: SidecarMetrics) -> None:
    """Up, waiting, hanging, failed."""
    source = metrics.source("a")
    source.set_up(True)
    source.set_blocked(True)
    source.stalled = 2
    assert [value(metrics, f"source_{name}", "a") for name in ("up", "blocked", "stalled")] == [1, 1, 2]
    source.set_blocked(False)
    source.failed()
    assert [value(metrics, f"source_{name}", "a") for name in ("up", "blocked", "failures_total")] == [0, 0, 1]


def test_a_source_that_is_no_longer_read_is_gone_from_the_page(metrics: SidecarMetrics) -> None:
    """And begins anew when it comes back; any text may be its name."""
    metrics.source('c "quoted"\\').count(TURN)
    metrics.source("a").count(TURN)
    metrics.forget("a")
    metrics.forget("never there")
    page = metrics.page().decode()
    assert 'source="a"' not in page
    assert 'foreshock_sidecar_events_total{source="c \\"quoted\\"\\\\"} 2.0' in page
    metrics.source("a")
    assert value(metrics, "lines_total", "a") == 0

"""The figures of each source, plain numbers until somebody asks: a turn counts, and a scrape shows."""

import time
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.collector import Collected

_PREFIX = "foreshock_sidecar"
_GAUGES = (
    ("source_up", "Whether the source was readable at its last turn.", "is_up"),
    ("source_blocked", "Whether the source waits for room in the spool.", "is_blocked"),
    ("source_stalled", "Threads of the source that hang past the deadline.", "stalled"),
    (
        "source_last_event_timestamp_seconds",
        "When the source last gave an event; 0: not yet.",
        "last_event_s",
    ),
)
_COUNTERS = (
    ("lines", "Lines, records or samples read.", "lines"),
    ("events", "Events that they gave.", "events"),
    ("parse_errors", "Lines of the right format that were broken.", "errors"),
    ("lost_records", "Records that a source dropped before they were read.", "lost"),
    ("source_failures", "Times that a source failed and was opened anew.", "failures"),
)


class SourceMetrics:
    """The figures of one source; its totals are what heartbeats say of it. `stalled` is for whoever sees it."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.is_up = False
        self.is_blocked = False
        self.stalled = 0
        self.last_event_s = 0.0  # Unix time
        self.totals = {"lines": 0, "events": 0, "errors": 0, "lost": 0, "failures": 0}

    def count(self, collected: Collected) -> None:
        """Add one turn."""
        if collected.events:
            self.last_event_s = time.time()
        self.totals["lines"] += collected.lines
        self.totals["events"] += len(collected.events)
        self.totals["errors"] += collected.errors
        self.totals["lost"] += collected.lost

    def failed(self) -> None:
        """It could not be read."""
        self.is_up = False
        self.totals["failures"] += 1

    def set_up(self, up: bool) -> None:
        """Whether it was readable at its last turn."""
        self.is_up = up

    def set_blocked(self, blocked: bool) -> None:
        """Whether it waits for room in the spool."""
        self.is_blocked = blocked


class SourceFigures(Collector):
    """Every source's, by its SPEC; sources may come and go."""

    def __init__(self, sources: Mapping[str, SourceMetrics]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """One sample of each source and figure."""
        sources = list(self._sources.values())
        for name, text, slot in _GAUGES:
            gauge = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=("source",))
            for source in sources:
                gauge.add_metric((source.spec,), float(getattr(source, slot)))
            yield gauge
        for name, text, key in _COUNTERS:
            counter = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=("source",))
            for source in sources:
                counter.add_metric((source.spec,), source.totals[key])
            yield counter

    def describe(self) -> list[Metric]:
        """Nothing to look at when it is registered."""
        return []

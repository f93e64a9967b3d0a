"""The sidecar's own figures, all in one registry."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from platform import python_version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from collectors.collector import CollectorTurn
from collectors.spool.segments import write_atomically
from parsers.trust import REFUSAL_REASONS
from store.records.event_sources import Trust
from store.visible_text import visible_exposition

# The figures of each source, plain numbers until somebody asks: a turn counts, and a scrape shows.

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
        self.trust: Trust | None = None  # set by whoever starts it
        self.refused: dict[str, int] = dict.fromkeys(REFUSAL_REASONS, 0)

    def count(self, collected: CollectorTurn) -> None:
        """Add one turn."""
        if collected.events:
            self.last_event_s = time.time()
        self.totals["lines"] += collected.lines
        self.totals["events"] += len(collected.events)
        self.totals["errors"] += collected.errors
        self.totals["lost"] += collected.lost
        for reason, lines in collected.refused.items():
            self.refused[reason] += lines

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
        words = "Lines that speak of what their log's writer may not tell."
        refused = CounterMetricFamily(f"{_PREFIX}_refused_lines", words, labels=("source", "reason"))
        trust = GaugeMetricFamily(f"{_PREFIX}_source_trust", "1: whose word the source is.", labels=("source", "trust"))
        for source in sources:
            for reason, lines in source.refused.items():
                refused.add_metric((source.spec, reason), lines)
            if source.trust is not None:
                trust.add_metric((source.spec, source.trust), 1.0)
        yield refused
        yield trust

    def describe(self) -> list[Metric]:
        """Nothing to look at when it is registered."""
        return []


# Which release of Foreshock this is, without importlib.metadata: that would cost the sidecar 4 MB of memory.


def installed_version() -> str:
    """As the folder beside the installed packages says it; `unknown` where there is none."""
    for place in filter(None, sys.path):
        for found in Path(place).glob("foreshock-*.dist-info"):
            return found.name.removeprefix("foreshock-").removesuffix(".dist-info")
    return "unknown"


_LATENCY_S = (0.01, 0.05, 0.25, 1.0, 5.0)


class SidecarMetrics:
    """Every figure. The process's own are apart: where node_exporter shows ours, they would collide with its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # or each counter has a second series, its birth time
        self.registry = CollectorRegistry()
        self.process = CollectorRegistry()
        ProcessCollector(registry=self.process)
        self.started_at = time.time()
        self.version = installed_version()
        self.sources: dict[str, SourceMetrics] = {}
        self.registry.register(SourceFigures(self.sources))
        build = self._gauge("build_info", "Which release this is.", "version", "python_version")
        build.labels(self.version, python_version()).set(1)
        self.shipped = self._counter("shipped_items", "Events and roll-ups that the server has taken.", "queue")
        self.rejected = self._counter("rejected_items", "Those it refused for good, kept in rejected.jsonl.", "queue")
        self.requests = self._counter("requests", "Requests to the server.", "queue")
        self.request_failures = self._counter("request_failures", "Requests that must be tried again.", "reason")
        self.request_s = Histogram(
            f"{_PREFIX}_request_duration_seconds",
            "How long the server took to answer.",
            ("queue",),
            registry=self.registry,
            buckets=_LATENCY_S,
        )
        self.last_shipped = self._gauge("last_shipped_timestamp_seconds", "When the server last took something.")
        self.last_contact = self._gauge(
            "last_contact_timestamp_seconds",
            "When the server last accepted something, a heartbeat too; at first, when the sidecar started.",
        )
        self.last_contact.set(self.started_at)
        self.heartbeats = self._counter("heartbeats", "Reports of its own state to the server.", "result")
        self.reload_failures = self._counter("config_reload_failures", "Changed configurations that were refused.")
        self.reload_successful = self._gauge(
            "config_last_reload_successful", "Whether the configuration in force is the newest one."
        )
        self._reload_time = self._gauge(
            "config_last_reload_success_timestamp_seconds", "When the configuration in force was read."
        )
        self.rejected_total = 0
        self.reloaded()
        for queue in ("events", "telemetry"):  # what appears at 1 would be no increase
            for counter in (self.shipped, self.rejected, self.requests):
                counter.labels(queue)
        for result in ("taken", "failed"):
            self.heartbeats.labels(result)

    def blocked_sources(self) -> list[str]:
        """The sources that wait for room in the spool: its disk is full, or its limit is reached."""
        return sorted(spec for spec, source in tuple(self.sources.items()) if source.is_blocked)

    def source(self, spec: str) -> SourceMetrics:
        """The figures of one source: the same each time."""
        if spec not in self.sources:
            self.sources[spec] = SourceMetrics(spec)
        return self.sources[spec]

    def forget(self, spec: str) -> None:
        """Show no figures of a source that is no longer read."""
        self.sources.pop(spec, None)

    def beaten(self, taken: bool) -> None:
        """A heartbeat was taken, or not."""
        self.heartbeats.labels("taken" if taken else "failed").inc()
        if taken:
            self.last_contact.set_to_current_time()

    def delivered(self) -> None:
        """The server took events or roll-ups."""
        self.last_shipped.set_to_current_time()
        self.last_contact.set_to_current_time()

    def reloaded(self) -> None:
        """The configuration in force is the newest one."""
        self.reload_successful.set(1)
        self._reload_time.set_to_current_time()

    def observe(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        self._gauge(name, text).set_function(read)

    def page(self, process: bool = True) -> bytes:
        """Everything as Prometheus reads it."""
        return visible_exposition(generate_latest(self.registry) + (generate_latest(self.process) if process else b""))

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)


# The figures as a file for node_exporter's textfile collector, for nodes where no further port may be opened.


class TextFile:
    """`--textfile PATH.prom`: written whole or not at all; others may read it. node_exporter adds its own time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, metrics: SidecarMetrics) -> None:
        """Replace the file. It lacks `process_*`: those names are node_exporter's own on that page.

        Raises:
            OSError: it cannot be written; the old one stays.
        """
        write_atomically(self._path, metrics.page(process=False), mode=0o644)

    def remove(self) -> None:
        """A sidecar that has ended has no figures."""
        self._path.unlink(missing_ok=True)

"""The sidecar's own figures, all in one registry."""

import time
from collections.abc import Callable
from platform import python_version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from collectors.source_metrics import SourceFigures, SourceMetrics
from collectors.version import installed_version

_PREFIX = "foreshock_sidecar"
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

    def source(self, spec: str) -> SourceMetrics:
        """The figures of one source: the same each time."""
        if spec not in self.sources:
            self.sources[spec] = SourceMetrics(spec)
        return self.sources[spec]

    def forget(self, spec: str) -> None:
        """Show no figures of a source that is no longer read."""
        self.sources.pop(spec, None)

    def reloaded(self) -> None:
        """The configuration in force is the newest one."""
        self.reload_successful.set(1)
        self._reload_time.set_to_current_time()

    def observe(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        self._gauge(name, text).set_function(read)

    def page(self, process: bool = True) -> bytes:
        """Everything as Prometheus reads it."""
        return generate_latest(self.registry) + (generate_latest(self.process) if process else b"")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

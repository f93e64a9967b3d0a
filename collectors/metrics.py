"""The sidecar's own figures, and the small server that shows them: `/` leads to `/metrics`."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.process_collector import ProcessCollector

from collectors.collector import Collected

_PREFIX = "foreshock_sidecar"
_LANDING = b"""<!doctype html><title>Foreshock sidecar</title><h1>Foreshock sidecar</h1>
<p><a href="/metrics">Metrics</a></p>
"""


class SourceMetrics:
    """The figures of one source."""

    def __init__(self, metrics: "SidecarMetrics", spec: str) -> None:
        self.up = metrics.up.labels(spec)
        self.blocked = metrics.blocked.labels(spec)
        self.failures = metrics.failures.labels(spec)
        self._lines = metrics.lines.labels(spec)
        self._events = metrics.events.labels(spec)
        self._errors = metrics.errors.labels(spec)
        self._lost = metrics.lost.labels(spec)

    def count(self, collected: Collected) -> None:
        """Add one turn."""
        self._lines.inc(collected.lines)
        self._events.inc(len(collected.events))
        self._errors.inc(collected.errors)
        self._lost.inc(collected.lost)


class SidecarMetrics:
    """Every figure, in a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # or each counter has a second series, its birth time
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.up = self._gauge("source_up", "Whether the source was readable at its last turn.", "source")
        self.blocked = self._gauge("source_blocked", "Whether the source waits for room in the spool.", "source")
        self.lines = self._counter("lines", "Lines, records or samples read.", "source")
        self.events = self._counter("events", "Events that they gave.", "source")
        self.errors = self._counter("parse_errors", "Lines of the right format that were broken.", "source")
        self.lost = self._counter("lost_records", "Records that a source dropped before they were read.", "source")
        self.failures = self._counter("source_failures", "Times that a source failed and was opened anew.", "source")
        self.shipped = self._counter("shipped_items", "Events and roll-ups that the server has taken.", "queue")
        self.rejected = self._counter("rejected_items", "Those it refused for good, kept in rejected.jsonl.", "queue")
        self.requests = self._counter("requests", "Requests to the server.", "queue")
        self.request_failures = self._counter("request_failures", "Requests that must be tried again.", "reason")
        self.last_shipped = self._gauge("last_shipped_timestamp_seconds", "When the server last took something.")

    def source(self, spec: str) -> SourceMetrics:
        """The figures of one source."""
        return SourceMetrics(self, spec)

    def observe(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        self._gauge(name, text).set_function(read)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)


class MetricsServer:
    """Serves the figures over HTTP until it is closed."""

    def __init__(self, metrics: SidecarMetrics, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._server = ThreadingHTTPServer((host, port), _handler(metrics))
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: SidecarMetrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers `/` and `/metrics`."""

        def do_GET(self) -> None:
            """One request."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(metrics.registry))
            elif path == "/":
                self._answer(200, "text/html; charset=utf-8", _LANDING)
            else:
                self._answer(404, "text/plain", b"Not found: see /metrics\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server calls
            """Scrapes are no news."""

    return Handler

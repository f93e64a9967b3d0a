"""The small server of the sidecar's `/metrics`, `/livez` and `/readyz`, which is 503 while a source waits for room.

Any user of the machine reaches its loopback. So a connection that says nothing ends, and there are never many: one that
comes beyond that takes the place of the oldest.
"""

import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

import orjson
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from collectors.collector import Wake

# Each connection is a thread and a file descriptor of a process that has better uses for them.
MOST_CONNECTIONS = 32
_SILENCE_S = 10.0
_LONG_S = 3600.0  # a wait that a request or the close ends
_LANDING = b"""<!doctype html><title>Foreshock sidecar</title><h1>Foreshock sidecar</h1>
<p><a href="/metrics">Metrics</a></p>
"""


class ScrapedServer(ThreadingHTTPServer):
    """An HTTP server whose scrapers may go away in the middle of an answer: that is their affair, and worth no line."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        """Listen, as every such server does."""
        super().__init__(address, handler)
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Answer in a thread of its own; whoever has been there longest makes room."""
        if isinstance(request, socket.socket):
            request.settimeout(_SILENCE_S)
            with self._lock:
                if len(self._open) >= MOST_CONNECTIONS:
                    oldest = next(iter(self._open))
                    del self._open[oldest]
                    with suppress(OSError):  # it has just ended
                        oldest.shutdown(socket.SHUT_RDWR)
                self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """The connection is done."""
        if isinstance(request, socket.socket):
            with self._lock:
                self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Print what went wrong with a request, unless its connection is gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Scraped(Protocol):
    """What is served."""

    def page(self) -> bytes:
        """The page of /metrics."""

    def blocked_sources(self) -> Sequence[str]:
        """What waits for room; nothing where all is well."""


class MetricsServer:
    """Serves the figures over HTTP until it is closed."""

    def __init__(self, metrics: Scraped, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the address is taken or not ours.
        """
        self._server = ScrapedServer((host, port), _handler(metrics))
        self.port = self._server.server_port
        self._wake = Wake()
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._wake.set()
        self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        """As `serve_forever`, which wakes twice a second to see whether it is to end."""
        while not self._wake.is_set:
            if self._wake.wait(_LONG_S, self._server.fileno()):
                self._server.handle_request()


def _handler(metrics: Scraped) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers `/`, `/metrics`, `/livez` and `/readyz`."""

        def do_GET(self) -> None:
            """One request."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, metrics.page())
            elif path == "/readyz":
                waiting = metrics.blocked_sources()
                text = f"failed: no room in the spool for {', '.join(waiting)}" if waiting else "ok"
                body = orjson.dumps({"status": "failed" if waiting else "ok", "checks": {"spool": text}})
                self._answer(503 if waiting else 200, "application/json", body)
            elif path == "/livez":
                self._answer(200, "application/json", orjson.dumps({"status": "ok", "checks": {}}))
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

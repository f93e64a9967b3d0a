"""A real HTTP server that records what a sidecar sends, and answers as it is told."""

import gzip
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import zstandard
from real.patience import patience

UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda body: body,
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body),
}
Reply = tuple[int, dict[str, str], Any]


@dataclass
class Recorder:
    """Everything that was posted. `answers` are given first, then every batch is taken."""

    items: dict[str, list[Any]] = field(default_factory=lambda: {"events": [], "telemetry": []})
    requests: list[dict[str, Any]] = field(default_factory=list)
    answers: list[Reply] = field(default_factory=list)
    judge: Callable[[str, list[Any]], Reply | None] = lambda _queue, _items: None
    server: ThreadingHTTPServer | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def events(self) -> list[Any]:
        """The events that were taken, in order."""
        return self.items["events"]

    def start(self) -> None:
        """Listen: the first time on a free port, later on the same one."""
        self.server = QuietServer(("127.0.0.1", self.port), _handler(self))
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go away."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """One request."""
        queue = path.rsplit("/", 1)[1]
        items = json.loads(UNPACK[headers.get("content-encoding", "none")](body))
        self.requests.append({"path": path, "headers": headers, "items": items, "at": time.monotonic()})
        reply = self.answers.pop(0) if self.answers else self.judge(queue, items)
        if reply is None:
            self.items.setdefault(queue, []).extend(items)
            return 202, {}, {"accepted": len(items), "known": 0, "rejected": []}
        return reply


class QuietServer(ThreadingHTTPServer):
    """A client that breaks off is no news."""

    daemon_threads = True

    def handle_error(self, *_arguments: Any) -> None:
        """Say nothing."""


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            if recorder.server is None:  # "gone": a kept connection must not outlive the server
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, extra, answer = recorder.receive(self.path, headers, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**extra, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A server that takes everything."""
    recorder = Recorder()
    recorder.start()
    yield recorder
    recorder.stop()


@pytest.fixture
def recorders() -> Iterator[list[Recorder]]:
    """Three servers that take everything."""
    found = [Recorder() for _ in range(3)]
    for each in found:
        each.start()
    yield found
    for each in found:
        each.stop()


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """Waits for something to become true, at most ten seconds; returns what it was last."""

    def wait(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + patience(10)
        while not (found := condition()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    return wait


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """No file of this process can grow past so many bytes: writes fail half-way, as on a full disk."""

    @contextmanager
    def limited(limit_bytes: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited

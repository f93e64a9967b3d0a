"""A real OpenTelemetry collector on the loopback: Rotel, the one that a Python package brings (it is written in Rust).

with collector(tmp_path, "http://127.0.0.1:10870/api") as url:
    post(url + "/v1/logs", ...)       # in batches on to http://127.0.0.1:10870/api/v1/logs, in protobuf, gzip
"""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from real.cached_programs import cached_environment
from real.foreshock import free_port
from real.programs import bound, stop, wait_for

PACKAGES = ("rotel==0.0.1a15",)


@contextmanager
def collector(folder: Path, endpoint: str) -> Iterator[str]:
    """Where it takes OTLP/HTTP in; it sends all on to an endpoint."""
    (agent,) = cached_environment("rotel", PACKAGES).glob("lib/python*/site-packages/rotel/rotel-agent")
    port, options = free_port(), ["--exporter", "otlp", "--otlp-exporter-protocol", "http", "--batch-timeout", "100ms"]
    for signal_name in ("logs", "metrics", "traces"):
        options += [f"--otlp-exporter-{signal_name}-endpoint", f"{endpoint}/v1/{signal_name}"]
    options += ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
    with (folder / "rotel.log").open("wb") as log:
        process = subprocess.Popen(bound([agent, "start", *options]), stdout=log, stderr=log, cwd=folder)
    try:
        wait_for("the collector listens", lambda: process.poll() is not None or _listens(port))
        assert process.poll() is None, (folder / "rotel.log").read_text()[-500:]
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process, signal.SIGTERM)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False

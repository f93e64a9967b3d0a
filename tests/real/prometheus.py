"""Prometheus' own tools: promtool, which reads a metrics page as Prometheus does, and node_exporter, our yardstick."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from real.programs import need, stop, wait_for


def check_metrics(page: str) -> str:
    """What promtool objects to in a metrics page; nothing where all is well."""
    command = [need("promtool", "prometheus"), "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=False, timeout=60)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit {done.returncode}"


@dataclass(frozen=True, slots=True)
class NodeExporter:
    """A running node_exporter."""

    url: str
    pid: int


@contextmanager
def node_exporter(folder: Path) -> Iterator[NodeExporter]:
    """A node_exporter on a free port of the loopback."""
    command = [need("prometheus-node-exporter", "prometheus-node-exporter"), "--web.listen-address=127.0.0.1:0"]
    log = folder / "node_exporter.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder)
    try:
        wait_for("node_exporter listens", lambda: _address(log) is not None or process.poll() is not None)
        address = _address(log)
        if address is None:
            raise RuntimeError(f"node_exporter ended: {log.read_text()[-500:]}")
        yield NodeExporter(f"http://{address}/metrics", process.pid)
    finally:
        stop(process, signal.SIGTERM)


def _address(log: Path) -> str | None:
    """The address that node_exporter says that it listens on."""
    found = re.search(r"(127\.0\.0\.1:\d*[1-9]\d*)", "\n".join(_listening(log.read_text())))
    return found[1] if found else None


def _listening(text: str) -> list[str]:
    return [line for line in text.splitlines() if "istening on" in line]

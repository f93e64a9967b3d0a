"""Prometheus and its tools: promtool, which reads a metrics page as it does, and node_exporter, our yardstick."""

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real.patience import patience
from real.programs import bound, need, stop, wait_for


def check_metrics(page: str) -> str:
    """What promtool objects to in a metrics page; nothing where all is well."""
    command = [need("promtool", "prometheus"), "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=False, timeout=patience(60))
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
        process = subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder)
    try:
        wait_for("node_exporter listens", lambda: _address(log) is not None or process.poll() is not None)
        address = _address(log)
        if address is None:
            raise RuntimeError(f"node_exporter ended: {log.read_text()[-500:]}")
        yield NodeExporter(f"http://{address}/metrics", process.pid)
    finally:
        stop(process, signal.SIGTERM)


@contextmanager
def prometheus(folder: Path, targets: dict[str, str], rules: str) -> Iterator[str]:
    """A Prometheus that scrapes pages each second and evaluates rules; its address.

    Args:
        targets: of each job, the `host:port` whose /metrics is scraped.
    """
    (folder / "rules.yml").write_text(rules)
    jobs = "".join(
        f"- {{job_name: {job}, static_configs: [{{targets: ['{target}']}}]}}\n" for job, target in targets.items()
    )
    head = "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"
    (folder / "prometheus.yml").write_text(head + jobs)
    with configured_prometheus(folder) as url:
        yield url


@contextmanager
def configured_prometheus(folder: Path) -> Iterator[str]:
    """A Prometheus with the `prometheus.yml` of a folder; its address."""
    program = need("prometheus", "prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={url[7:]}"]
    log = folder / "prometheus.log"
    with log.open("wb") as file:
        process = subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder)
    try:
        wait_for("prometheus is ready", lambda: _ready(url) or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"prometheus ended: {log.read_text()[-500:]}")
        yield url
    finally:
        stop(process, signal.SIGTERM)


def asked_of(url: str) -> Any:
    """What Prometheus or Alertmanager answers, of its JSON."""
    with urllib.request.urlopen(url, timeout=patience(10)) as answer:
        return json.loads(answer.read())


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=patience(5)) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def _address(log: Path) -> str | None:
    """The address that node_exporter says that it listens on."""
    found = re.search(r"(127\.0\.0\.1:\d*[1-9]\d*)", "\n".join(_listening(log.read_text())))
    return found[1] if found else None


def _listening(text: str) -> list[str]:
    return [line for line in text.splitlines() if "istening on" in line]


@contextmanager
def alertmanager(folder: Path, configuration: str) -> Iterator[str]:
    """An Alertmanager by itself, with a configuration; gives its URL."""
    command = [need("prometheus-alertmanager", "prometheus-alertmanager"), "--web.listen-address=127.0.0.1:0"]
    (folder / "alertmanager.yml").write_text(configuration, encoding="utf-8")
    command += [f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'alertmanager'}"]
    log = folder / "alertmanager.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            bound([*command, "--cluster.listen-address="]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=folder,
        )
    try:
        wait_for("Alertmanager listens", lambda: _address(log) is not None or process.poll() is not None)
        address = _address(log)
        if address is None:
            raise RuntimeError(f"Alertmanager ended: {log.read_text()[-500:]}")
        wait_for("Alertmanager is ready", lambda: _ready(f"http://{address}"))
        yield f"http://{address}"
    finally:
        stop(process, signal.SIGTERM)

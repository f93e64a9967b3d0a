"""The demo's replay: the logs of a simulated cluster grow as they once did, and its GPUs answer a scrape.

Nothing of the product knows that it is a replay: the sidecar follows files and scrapes a page.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from cli.replay.clock import ReplayClock
from cli.replay.tape import NODE, ReplayTape
from collectors.agent.metrics_server import ScrapedServer
from simulator.output.archive import OutputLine, entries, exposition
from simulator.simulation import SimulatedCluster

# Before the failure: time enough to see it come. After it: to see the run restart and the node return.
LEAD = timedelta(hours=36)
TAIL = timedelta(hours=30)
# The share of the archive that is always history: a model needs failures to learn from.
_HISTORY_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is replayed: from `start` to `end`; everything before is history."""

    start: datetime
    end: datetime


def choose_stretch(cluster: SimulatedCluster) -> Stretch:
    """The newest stretch in which a failure with precursors stops the training run; without one, the last days."""
    settings = cluster.settings
    end = settings.moment(settings.length_ms)
    earliest = settings.start + (end - settings.start) * _HISTORY_SHARE
    broken = {a.fault.fault_ms for run in cluster.runs for a in run.attempts if a.fault is not None}
    for failure in reversed(cluster.failures):
        fault = settings.moment(failure.fault_ms)
        if failure.visible and failure.outage and failure.fault_ms in broken and fault - LEAD >= earliest:
            return Stretch(fault - LEAD, min(fault + TAIL, end))
    return Stretch(max(end - LEAD - TAIL, earliest), end)


class Feeder:
    """Appends each entry to the file of its target once its moment has come."""

    def __init__(self, waiting: Iterable[OutputLine], directory: Path) -> None:
        """`directory` receives one file a target; targets are known from the start."""
        self._waiting = deque(waiting)
        self._directory = directory
        self.targets: Sequence[str] = sorted({entry.target for entry in self._waiting})

    def sources(self) -> list[str]:
        """What the sidecar is told to follow: `file:PATH:FORMAT` for each target."""
        return [f"file:{self._path(target)}:{target.split('/')[0]}" for target in self.targets]

    def feed(self, moment: datetime) -> int:
        """Write what is due by a moment; returns how many lines."""
        due: dict[str, list[str]] = {}
        while self._waiting and self._waiting[0].time <= moment:
            entry = self._waiting.popleft()
            due.setdefault(entry.target, []).append(entry.text + "\n")
        for target, lines in due.items():
            path = self._path(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        return sum(map(len, due.values()))

    @property
    def waiting(self) -> int:
        """How many lines are still to come."""
        return len(self._waiting)

    def _path(self, target: str) -> Path:
        return self._directory / (target if "/" in target else f"{target}.log")


def feeder(cluster: SimulatedCluster, stretch: Stretch, directory: Path) -> Feeder:
    """The lines of a stretch, waiting for their moments."""
    return Feeder((e for e in entries(cluster, stretch.start) if e.time < stretch.end), directory)


def tape_page(page: str) -> str:
    """The address of the tape's page, by that of the cluster's."""
    return f"{page.removesuffix('/metrics')}/{NODE}/metrics"


@contextmanager
def exporter(cluster: SimulatedCluster, clock: ReplayClock, tape: ReplayTape | None = None) -> Iterator[str]:
    """A dcgm-exporter page with the GPUs of every node, as they are at the replayed moment; yields its URL.

    With a tape, `tape_page(URL)` is the page of that node's own exporters.
    """

    class Page(BaseHTTPRequestHandler):
        """One page, whatever is asked for, but for the tape's."""

        def do_GET(self) -> None:
            """Answer with the exposition text."""
            real = tape if self.path == tape_page("") else None
            body = (exposition(cluster, clock()) if real is None else real.exposition(clock())).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
            """Requests are not worth a line."""

    server = ScrapedServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, name="exporter", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

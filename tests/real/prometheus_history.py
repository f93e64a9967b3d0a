"""A Prometheus with a past: tapes or made samples, loaded by promtool; it can be killed and started again."""

import math
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
from real.patience import patience
from real.programs import bound, need, stop, wait_for
from real.prometheus import _ready

# Of which job each exporter's metrics are, and the port of its address.
_JOBS = (("DCGM_", "dcgm", 9400), ("ipmi_", "ipmi", 9290), ("", "node", 9100))


def series_of(name: str, labels: Mapping[str, str]) -> str:
    """A time series as OpenMetrics writes it."""
    escaped = {key: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, text in labels.items()}
    inner = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{inner}}}"


def write_sample(file: IO[str], series: str, point: tuple[float, float]) -> None:
    """One line of OpenMetrics: value, and time in seconds."""
    file.write(f"{series} {point[0]:.17g} {point[1]:.3f}\n")


def tape_as_openmetrics(tapes: Iterable[Path], file: IO[str]) -> int:
    """The telemetry of tapes as a Prometheus that scrapes dcgm-exporter, node_exporter and ipmi_exporter has it."""
    lines = 0
    for path in [path for tape in tapes for path in sorted((tape / "telemetry").glob("*.parquet"))]:
        table = pq.read_table(path)
        times = [moment.timestamp() for moment in table["time"].to_pylist()]
        nodes = table["node"].to_pylist()
        gpus = table["gpu"].to_pylist() if "gpu" in table.column_names else [None] * len(nodes)
        places = list(zip(nodes, gpus, strict=True))
        for name in table.column_names:
            if name in ("time", "node", "gpu"):
                continue
            job, port = next((job, port) for prefix, job, port in _JOBS if name.startswith(prefix))
            series: dict[tuple[str, int | None], str] = {}
            for place, value, time in zip(places, table[name].to_pylist(), times, strict=True):
                if value is None or math.isnan(value):
                    continue
                if place not in series:
                    node, gpu = place
                    of_gpu = {} if gpu is None else {"gpu": str(gpu), "Hostname": node}
                    series[place] = series_of(name, {"instance": f"{node}:{port}", "job": job} | of_gpu)
                write_sample(file, series[place], (value, time))
                lines += 1
    file.write("# EOF\n")
    return lines


@dataclass(slots=True)
class PastPrometheus:
    """One whose data lies in a folder; the same address over all its lives."""

    folder: Path
    url: str
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None)

    def load(self, openmetrics: Path) -> None:
        """Make blocks of samples, before it is started."""
        command = [need("promtool", "prometheus"), "tsdb", "create-blocks-from", "--max-block-duration=744h"]
        command += ["openmetrics", str(openmetrics), str(self.folder / "data")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(300))
        if done.returncode:
            raise RuntimeError(f"promtool: {done.stdout[-300:]}{done.stderr[-500:]}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        (self.folder / "prometheus.yml").write_text("global: {}\n")
        command = [need("prometheus", "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        command += ["--storage.tsdb.retention.time=100y", f"--web.listen-address={self.url[7:]}", *self.options]
        log = self.folder / "prometheus.log"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                bound(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.folder
            )
        process = self.process
        wait_for("prometheus is ready", lambda: _ready(self.url) or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"prometheus ended: {log.read_text()[-500:]}")

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            stop(self.process, signal.SIGKILL)
            self.process = None


@contextmanager
def past_prometheus(folder: Path, openmetrics: Path | None, *options: str) -> Iterator[PastPrometheus]:
    """A Prometheus that has the samples of a file, or what lies in `data` already."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = PastPrometheus(folder, f"http://127.0.0.1:{free.getsockname()[1]}", options)
    if openmetrics is not None:
        server.load(openmetrics)
    server.start()
    try:
        yield server
    finally:
        server.kill()

"""A real Ray cluster of one node with two workers, on loopback alone; it tells nobody of its use and ends by itself."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from real.programs import bound, missing, stop, wait_for

from cli.processes.children import free_port

WORKERS = 2
# It gives up by itself when the machine is too busy to start it within half a minute.
_TRIES = 3
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # Of several machines no node could be on loopback; so named, it is on Linux too.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


@contextmanager
def ray_cluster() -> Iterator[str]:
    """Its address; the test that asks for it is skipped where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        missing("Ray is not installed: uv sync --extra ray (a wheel of 79 MB, 240 MB installed)")
    os.environ.update(_QUIET)
    # A socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        address, process = _started(folder)
        try:
            yield address
        finally:
            stop(process, signal.SIGTERM, timeout_s=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name in _QUIET:
            os.environ.pop(name, None)


def _started(folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """The address and the process whose end ends all."""
    for number in range(_TRIES):
        port, log = free_port(), folder / f"start{number}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                bound(_command(port, folder / str(number))), stdout=said, stderr=subprocess.STDOUT
            )

        def decided(process: subprocess.Popen[bytes] = process, log: Path = log) -> bool:
            return process.poll() is not None or b"Ray runtime started" in log.read_bytes()

        wait_for("ray start", decided, timeout_s=180)
        if process.poll() is None:
            return f"127.0.0.1:{port}", process
    raise TimeoutError(f"ray start: {log.read_text(errors='replace')[-2000:]}")


def _command(port: int, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", f"--num-cpus={WORKERS}", "--include-dashboard=false"),
        *(f"--temp-dir={folder}", "--object-store-memory=80000000"),
    ]

"""`foreshock ingest prometheus:URL`: a million samples of real nodes, killed and resumed in between."""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import orjson
import real.prometheus_history as starter
from real.programs import need

from benchmarks.processor import program_s
from benchmarks.result import Result

WHAT = "a million samples of a Prometheus's history"
BUDGET = "< 60 s on 2 cores, killed and resumed: the same events as from the archive"
LIMIT_S = 60.0
_TAPES = Path(__file__).parents[1] / "fixtures/real/gwdg/tapes"
# One node and time each: these two lie inside the time of others of their node.
_LEFT_OUT = ("ggpu142_2025-03-15", "ggpu142_2025-03-19")
_RANGE = ("--since", "2025-02-09", "--until", "2025-09-16")
_FORESHOCK = str(Path(sys.executable).parent / "foreshock")
_MILLION = 1_000_000

T = TypeVar("T")


def measure(folder: Path) -> Iterator[Result]:
    """The whole program into SQLite, beside a Prometheus 2.42 on the same two cores; the other prints its blocks."""
    tapes = [tape for tape in sorted(_TAPES.iterdir()) if not tape.name.startswith(_LEFT_OUT)]
    text = folder / "past.txt"
    with text.open("w", encoding="utf-8") as file:
        starter.tape_as_openmetrics(tapes, file)
    with starter.past_prometheus(folder / "prometheus", text) as server:
        pid = server.process.pid if server.process else 0
        before_s = program_s(pid)
        took_s, processor_s, told = _timed(lambda: _ingested(server.url, folder / "whole.db"))
        served_s = program_s(pid) - before_s
        dumped_s, dumping_s, dumped = _timed(lambda: _dumped(server.folder / "data"))
        broken_s, _, _ = _timed(lambda: _killed_and_resumed(server.url, folder / "broken.db"))
    archive_s, _, _ = _timed(lambda: _from_archive(tapes, folder))
    samples = told["samples"]
    same = _events(folder / "whole.db") == _events(folder / "broken.db") == _events(folder / "archive.db")
    per_million, theirs = took_s / samples * _MILLION, dumped_s / dumped * _MILLION
    resumed = broken_s / samples * _MILLION
    yield Result(
        WHAT,
        BUDGET,
        f"{per_million:.1f} s, {resumed:.1f} s killed and resumed twice",
        f"{theirs:.1f} s (promtool tsdb dump, of its blocks to /dev/null)",
        per_million / theirs,
        "met" if same and max(per_million, resumed) < LIMIT_S else "not met",
        f"{samples} samples of {len(tapes)} tapes of real nodes in {took_s:.1f} s: processor {processor_s:.1f} s ours, "
        f"{served_s:.1f} s Prometheus', {dumping_s:.1f} s promtool's for {dumped} samples; "
        f"{told['rollups']} roll-ups, {told['events']} events, {'the same' if same else '**others**'} killed and from "
        f"the archive (Parquet, {archive_s:.1f} s); other work went on: load {os.getloadavg()[1]:.1f}",
    )


def _timed(work: Callable[[], T]) -> tuple[float, float, T]:
    """Seconds by the clock, processor seconds of what was started and has ended, and the answer."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    found = work()
    took_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, found


def _command(url: str, database: Path) -> list[str]:
    return [_FORESHOCK, "ingest", f"prometheus:{url}", *_RANGE, "--db", f"sqlite:///{database}", "--json"]


def _ingested(url: str, database: Path) -> dict[str, int]:
    done = subprocess.run(_command(url, database), check=True, capture_output=True)
    found: dict[str, int] = orjson.loads(done.stdout)
    return found


def _killed_and_resumed(url: str, database: Path) -> int:
    """The same, killed twice with -9 after some windows."""
    for windows in (1, 6):
        process = subprocess.Popen(_command(url, database), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _taken(database) < windows * 20_000:
            time.sleep(0.02)
        if process.poll() is not None:
            raise RuntimeError("the import was over before it could be killed")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return _ingested(url, database)["samples"]


def _taken(database: Path) -> int:
    try:
        return sum(samples for (samples,) in _rows(database, "SELECT samples FROM histories"))
    except sqlite3.OperationalError:  # it is not there yet, or has no tables
        return 0


def _dumped(data: Path) -> int:
    """How many samples promtool prints."""
    command = [need("promtool", "prometheus"), "tsdb", "dump", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        counted = subprocess.run(["wc", "-l"], stdin=process.stdout, check=True, capture_output=True)
    return int(counted.stdout)


def _from_archive(tapes: list[Path], folder: Path) -> int:
    archive = folder / "archive" / "telemetry"
    archive.mkdir(parents=True)
    for tape in tapes:
        for part in (tape / "telemetry").glob("*.parquet"):
            shutil.copy(part, archive / f"{tape.name}-{part.name}")
    command = [_FORESHOCK, "ingest", str(archive.parent), "--db", f"sqlite:///{folder / 'archive.db'}"]
    subprocess.run(command, check=True, capture_output=True)
    return 0


def _events(database: Path) -> list[tuple[Any, ...]]:
    return _rows(database, "SELECT id, kind, node, device, time FROM events ORDER BY id")


def _rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()

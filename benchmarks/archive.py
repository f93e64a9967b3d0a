"""`foreshock ingest` of simulated clusters, each twice as large as the one before: what a doubling costs."""

import itertools
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
from real.postgres import postgres

from benchmarks.result import Result, seconds

WHAT = "ingest of an archive, twice the nodes"
BUDGET = "<= 2.1 x the cost"
NODES, DAYS = (100, 200, 400), 30
_FORESHOCK = str(Path(sys.executable).parent / "foreshock")


def measure(folder: Path) -> Iterator[Result]:
    """Archives of 100, 200 and 400 nodes over 30 days, into SQLite and into PostgreSQL with fsync."""
    archives = [_simulated(folder / str(nodes), nodes) for nodes in NODES]
    with postgres(fsync=True) as server:
        for name, urls in (
            ("SQLite", [f"sqlite:///{folder / f'{nodes}.db'}" for nodes in NODES]),
            ("PostgreSQL", [server.new_database() for _ in NODES]),
        ):
            told = [_ingested(archive, url) for archive, url in zip(archives, urls, strict=True)]
            yield _result(name, told)
    for archive in archives:
        shutil.rmtree(archive.parent)


def _simulated(folder: Path, nodes: int) -> Path:
    command = [_FORESHOCK, "simulate", str(folder), "--nodes", str(nodes), "--days", str(DAYS), "--seed", "3"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "archive"


def _ingested(archive: Path, url: str) -> tuple[float, int]:
    """Seconds of the whole program, and how many records there were."""
    found: list[bytes] = []
    command = [_FORESHOCK, "ingest", str(archive), "--db", url, "--json"]
    took = seconds(lambda: found.append(subprocess.run(command, check=True, capture_output=True).stdout))
    return took, orjson.loads(found[0])["total"]["records"]


def _result(name: str, told: list[tuple[float, int]]) -> Result:
    """The worst ratio per doubling of records: a cluster of twice the nodes has not exactly twice the lines."""
    ratios = [(b[0] / a[0]) ** (1 / math.log2(b[1] / a[1])) for a, b in itertools.pairwise(told)]
    took, records = told[-1]
    return Result(
        f"{WHAT} ({name})",
        BUDGET,
        f"{records / took:.0f} records/s",
        "-",
        max(ratios),
        "met" if max(ratios) <= 2.1 else "not met",
        f"{', '.join(map(str, NODES))} nodes x {DAYS} days: {', '.join(f'{took:.0f} s' for took, _ in told)};"
        " ratio: cost of twice the records, the worst step",
    )

"""The sidecar's memory and processor time, against node_exporter's, both scraped each second for a while."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from real.foreshock import serve, sidecar
from real.prometheus import node_exporter

from benchmarks.result import Result

WHAT = "sidecar, resident memory and processor time"
BUDGET = "<= 2 x node_exporter's"
PERIOD_S = 20
_LINES_A_SECOND = 20
_QUIET = "2025-03-01T04:05:06+00:00 gpu-017 kernel: usb 1-1: new high-speed USB device number 4\n"
_FAULT = "2025-03-01T04:05:06+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 31, pid={n}, name=python, MMU Fault\n"


def measure(folder: Path) -> Iterator[Result]:
    """Run both side by side, the sidecar with a log of 20 lines a second of which one is a fault."""
    log = folder / "kern.log"
    log.write_text("")
    with _running(folder, log) as (ours, theirs):
        _drive(2, log, (ours[1], theirs[1]))  # what only the first seconds cost is none of the period's
        before = [_cpu_s(pid) for pid, _ in (ours, theirs)]
        _drive(PERIOD_S, log, (ours[1], theirs[1]))
        used = [_cpu_s(pid) - was for (pid, _), was in zip((ours, theirs), before, strict=True)]
        memory = [_resident_mb(pid) for pid, _ in (ours, theirs)]
    yield _result("sidecar, resident memory", memory, "MB", 1)
    yield _result("sidecar, processor time", [1000 * each / PERIOD_S for each in used], "ms/s", 2)


def _result(what: str, values: list[float], unit: str, digits: int) -> Result:
    ours, theirs = values
    note = f"over {PERIOD_S} s, each scraped once a second"
    shown = [f"{value:.{digits}f} {unit}" for value in values]
    if not theirs:  # its processor time was below the clock's tick
        return Result(what, BUDGET, shown[0], shown[1], None, "not measured", note)
    return Result(what, BUDGET, shown[0], shown[1], ours / theirs, "met" if ours <= 2 * theirs else "not met", note)


@contextmanager
def _running(folder: Path, log: Path) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    with (
        serve(f"sqlite:///{folder / 'x.db'}", folder) as server,
        sidecar(server, folder, f"file:{log}:kernel") as agent,
        node_exporter(folder) as exporter,
    ):
        yield (agent.pid, f"{agent.url}/metrics"), (exporter.pid, exporter.url)


def _drive(period_s: int, log: Path, pages: tuple[str, str]) -> None:
    for second in range(period_s):
        with log.open("a") as file:
            file.write(_QUIET * (_LINES_A_SECOND - 1) + _FAULT.format(n=time.monotonic_ns() + second))
        for page in pages:
            with urlopen(page, timeout=10) as reply:  # noqa: S310  # our own loopback
                reply.read()
        time.sleep(1)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

"""A fault line written to /dev/kmsg until the API serves its incident: one node, its real sidecar and server."""

import os
import time
from pathlib import Path

from real.foreshock import Running, serve, sidecar

from benchmarks.result import Result, quantile, unmeasured

WHAT = "fault line in /dev/kmsg until it is an incident in the API"
BUDGET = "p99 < 1 s on one node"
LINES, PATIENCE_S, LIMIT_S = 100, 5, 60
KMSG = Path("/dev/kmsg")


def measure(folder: Path) -> Result:
    """Lines of several GPUs and codes; those close together are one incident, which then counts one event more."""
    if not os.access(KMSG, os.R_OK | os.W_OK):
        return unmeasured(WHAT, BUDGET, "/dev/kmsg may not be read and written here")
    took = []
    with serve(f"sqlite:///{folder / 'x.db'}", folder) as server, sidecar(server, folder, "kmsg", node="bench"):
        time.sleep(1)  # what the ring held before is read first
        until = time.monotonic() + LIMIT_S
        for number in range(LINES):
            if time.monotonic() < until:
                took.append(_one(server, number))
                time.sleep(0.05)
    lost = sum(value is None for value in took)
    known = [value for value in took if value is not None]
    p99 = quantile(known, 0.99) if known else float("inf")
    return Result(
        WHAT,
        BUDGET,
        f"p50 {quantile(known, 0.5) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms",
        "-",
        None,
        "met" if p99 < 1 and not lost else "not met",
        f"{len(took)} lines, {lost} not seen within {PATIENCE_S} s; SQLite; an absolute budget, so no other program",
    )


def _one(server: Running, number: int) -> float | None:
    mark = f"foreshock benchmark {os.getpid()}-{number}"
    pci, code = f"0000:{number % 8 + 16:02x}:00", 79 if number % 2 else 48
    before = _counted(server)
    began = time.perf_counter()
    # A descriptor of its own for each line: the kernel drops what one writes more than ten times in five seconds.
    # And a line end: without one the kernel may hold the record back until the next comes.
    with KMSG.open("wb", buffering=0) as kmsg:
        kmsg.write(f"<3>NVRM: Xid (PCI:{pci}): {code}, pid={number}, name=x, {mark}\n".encode())
    while time.perf_counter() - began < PATIENCE_S:
        if _counted(server) > before:
            return time.perf_counter() - began
        time.sleep(0.005)
    return None


def _counted(server: Running) -> int:
    """The events of all incidents of this node."""
    incidents = server.get("/api/v1/incidents?node=bench")["items"]
    return sum(incident["count"] for incident in incidents if incident["device"]["pci"])

"""What the dashboard asks of the API, over a filled store: the slowest twentieth of the answers."""

import time
from pathlib import Path

from real.foreshock import serve

from benchmarks.cluster import DAYS, NODES, simulated
from benchmarks.result import Result, quantile

WHAT = "any API read"
BUDGET = "p95 < 200 ms over 12,500 nodes and a year"
PATHS = (
    "/api/v1/cluster",
    "/api/v1/nodes",
    "/api/v1/nodes/gpu-017",
    "/api/v1/events?limit=1000",
    "/api/v1/events?node=gpu-017&kind=xid&limit=100",
    "/api/v1/incidents",
    "/api/v1/runs",
    "/api/v1/topology",
)
TIMES = 15


def measure(folder: Path) -> Result:
    """Each read in turn, one client."""
    took: dict[str, list[float]] = {path: [] for path in PATHS}
    with simulated(folder) as engine, serve(str(engine.url), folder) as server:
        for _ in range(TIMES):
            for path in PATHS:
                began = time.perf_counter()
                server.text(path)
                took[path].append(time.perf_counter() - began)
    slowest = max(PATHS, key=lambda path: quantile(took[path], 0.95))
    p95 = quantile(took[slowest], 0.95)
    return Result(
        WHAT,
        BUDGET,
        f"p95 {p95 * 1000:.0f} ms ({slowest})",
        "-",
        None,
        "not met" if p95 >= 0.2 else "not measured",
        f"{NODES} nodes, {DAYS} days, SQLite: smaller than the budget's size; an absolute budget, so no other program",
    )

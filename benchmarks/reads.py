"""Every read of the API over a large fleet's year in PostgreSQL: how long an answer takes, the slowest twentieth.

`python -m benchmarks reads` measures it; the table of every path goes to standard error and to docs/reads.md.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from real.foreshock import Running, serve
from real.programs import wait_for

from benchmarks.fleet_rows import LONG_RUN, Size
from benchmarks.fleet_year import fleet_year
from benchmarks.processor import family_s, grown_s, program_s, sessions_s
from benchmarks.read_paths import paths
from benchmarks.result import Result, quantile

WHAT = "any API read"
BUDGET = "p95 < 200 ms over 12,500 nodes and a year"
BUDGET_S = 0.2
TIMES, CLIENTS = 40, 4
_LOOKED_AT_S = 30
PREFIX = "/api/v1/"
# A folder that keeps the fleet between two calls; it takes some twenty minutes to make, and 13 GB.
KEPT = "FORESHOCK_BENCH_YEAR"


@dataclass(frozen=True, slots=True)
class Read:
    """How long one path took, in seconds: by one client alone, and by each of several at once.

    `server_s` and `database_s` are the processor's, of one call by one client; loops beside it count as well.
    """

    path: str
    size_bytes: int
    alone: Sequence[float]
    together: Sequence[float]
    server_s: float
    database_s: float


def measure(folder: Path, size: Size | None = None, times: int = TIMES) -> Result:
    """Each path after one call to warm up: by one client, then by four at once."""
    folder.parent.chmod(0o755)  # the database runs as another user
    kept = Path(os.environ.get(KEPT, folder.parent / "year"))
    with fleet_year(kept, size) as url, serve(url, folder) as server:
        now = datetime.now(UTC)
        wait_for("the ledgers are computed", lambda: _ledgers_are_there(server), 300)
        postmaster = int((kept / "data/postmaster.pid").read_text().split()[0])
        # In its first minutes over a year a server learns links and looks at what was told before it came.
        wait_for("the server has done what it does first", lambda: _rests(server.pid, postmaster), 1_200)
        asked = paths(now, lambda path: server.get(PREFIX + path))
        found = [_read((server, postmaster), path, times) for path in asked]
    print(table(found), file=sys.stderr)
    return _result(found, size)


def _rests(pid: int, postmaster: int) -> bool:
    """Whether a server and its database's sessions spend less than a fifth of one processor."""
    spent, sessions = family_s(pid), sessions_s(postmaster)
    time.sleep(_LOOKED_AT_S)
    grown = family_s(pid) - spent + grown_s(sessions, sessions_s(postmaster))
    return abs(grown) < _LOOKED_AT_S / 5


def _result(found: Sequence[Read], size: Size | None) -> Result:
    slowest = max(found, key=lambda read: quantile(list(read.alone), 0.95))
    busiest = max(found, key=lambda read: quantile(list(read.together), 0.95))
    p95, p95_together = quantile(list(slowest.alone), 0.95), quantile(list(busiest.together), 0.95)
    verdict = "not met" if p95 >= BUDGET_S else "met" if size is None else "not measured"
    return Result(
        WHAT,
        BUDGET,
        f"p95 {p95 * 1000:.0f} ms ({slowest.path})",
        "-",
        None,
        verdict,
        f"the slowest of {len(found)} paths; {CLIENTS} clients at once: p95 {p95_together * 1000:.0f} ms "
        f"({busiest.path}); load average {os.getloadavg()[1]:.1f}; PostgreSQL, "
        "one server process with its loops; hours of telemetry kept 30 days, "
        "days before; an absolute budget, so no other program",
    )


def _ledgers_are_there(server: Running) -> bool:
    runs = server.get(f"{PREFIX}runs?limit=1000")["items"]
    return bool(runs) and all(run["goodput"] is not None for run in runs if run["run"] != LONG_RUN)


def _read(programs: tuple[Running, int], path: str, times: int) -> Read:
    """`programs`: the server, and the number of its database's first process."""
    server, postmaster = programs
    _timed(server, path, 1)
    spent, sessions = program_s(server.pid), sessions_s(postmaster)
    alone, size_bytes = _timed(server, path, times)
    server_s, database_s = program_s(server.pid) - spent, grown_s(sessions, sessions_s(postmaster))
    with ThreadPoolExecutor(CLIENTS) as pool:
        share = [pool.submit(_timed, server, path, max(2, times // CLIENTS)) for _ in range(CLIENTS)]
        together = [second for each in share for second in each.result()[0]]
    return Read(path, size_bytes, alone, together, server_s / times, database_s / times)


def _timed(server: Running, path: str, times: int) -> tuple[list[float], int]:
    """Seconds of each call over one connection, and the bytes of the last answer."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    took, body = [], b""
    try:
        for _ in range(times):
            began = time.perf_counter()
            connection.request("GET", PREFIX + path)
            answer = connection.getresponse()
            body = answer.read()
            took.append(time.perf_counter() - began)
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {json.loads(body).get('detail')}")
    finally:
        connection.close()
    return took, len(body)


def table(found: Sequence[Read]) -> str:
    """A Markdown table of every path, the slowest first."""
    heads = ("path", "kB", "p50 ms", "p95 ms", "p50, 4 clients", "p95, 4 clients", "server's processor", "PostgreSQL's")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for read in sorted(found, key=lambda read: -quantile(list(read.alone), 0.95)):
        figures = (quantile(list(took), share) * 1000 for took in (read.alone, read.together) for share in (0.5, 0.95))
        shown = " | ".join(f"{figure:.0f}" for figure in (*figures, read.server_s * 1000, read.database_s * 1000))
        rows.append(f"| `{read.path[:90]}` | {read.size_bytes / 1000:.0f} | {shown} |")
    return "\n".join(rows)

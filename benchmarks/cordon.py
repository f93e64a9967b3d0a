"""A fatal fault sent to the server until the scheduler itself tells that the node is out of service.

Against a real Slurm and a real Kubernetes API server, with a server process over PostgreSQL: so many single faults, one
after the other, then a hundred nodes in one request. Beside it, in the same run, how long `scontrol` or `kubectl` take
for the same by themselves. The limits that would stop such a flood in production are raised.
"""

import http.client
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import orjson
import pytest
from real.foreshock import Running, serve
from real.kubernetes import Kubernetes, kubernetes
from real.postgres import postgres
from real.slurm import Slurm, slurm

from benchmarks.result import Result, quantile, unmeasured
from store.database.connections import migrate, open_database, writing
from store.events.append import append_nodes
from store.records.node import Node

WHAT = "fatal fault posted until the scheduler tells that its node is out of service"
AT_ONCE = "the same for 100 nodes in one request, until the last is"
BUDGET, BUDGET_AT_ONCE = "p99 < 1 s", "< 5 s"
SINGLES, TOGETHER, ALONE = 200, 100, 50
_PATIENCE_S = 30.0
_LIMIT_S = 400.0  # of the single faults: fewer are measured where each takes long
_LOOK_S = 0.003
_SETTINGS = """\
mode: act
budgets: {{nodes: 100000, percent_of_nodes: 100, per_rack: 100000, per_leaf: 100000, per_hour: 100000}}
breaker: {{nodes: 100000, cluster_nodes: 100000}}
schedulers:
  - {scheduler}
"""


@dataclass(frozen=True, slots=True)
class Told:
    """One kind of scheduler that runs: its entry in the configuration, and what is asked of it without us.

    `out`: those of the nodes that it tells are out of service; `alone` takes one out by the public program and waits
    for its answer; `together` so many; `free` puts them back.
    """

    program: str
    entry: str
    nodes: Sequence[str]
    out: Callable[[Sequence[str]], set[str]]
    alone: Callable[[str], object]
    together: Callable[[Sequence[str]], object]
    free: Callable[[Sequence[str]], object]


@contextmanager
def _slurm() -> Iterator[Told]:
    count = SINGLES + TOGETHER
    names = [f"gpu{i:03d}" for i in range(1, count + 1)]
    with slurm(f"gpu[001-{count:03d}]") as cluster:
        entry = f"{{kind: slurm, name: slurm, conf: {cluster.folder / 'slurm.conf'}, calls_per_min: 1000000}}"
        yield Told(
            "scontrol update + show",
            entry,
            names,
            lambda nodes: _drained(cluster, nodes),
            lambda node: _drain_alone(cluster, [node]),
            lambda nodes: _drain_alone(cluster, nodes),
            lambda nodes: _undrain(cluster, nodes),
        )


def _drained(cluster: Slurm, nodes: Sequence[str]) -> set[str]:
    said = cluster.run("scontrol", "-o", "show", "node", ",".join(nodes))
    states = {line.split()[0].removeprefix("NodeName="): line.split(" State=")[1] for line in said.splitlines() if line}
    return {node for node, rest in states.items() if "DRAIN" in rest.split()[0]}


def _undrain(cluster: Slurm, nodes: Sequence[str]) -> None:
    with suppress(subprocess.CalledProcessError):  # of a node without a slurmd it does it, and says that it cannot
        cluster.run("scontrol", "update", f"nodename={','.join(nodes)}", "state=undrain")
    for node in sorted(_drained(cluster, nodes)):
        with suppress(subprocess.CalledProcessError):
            cluster.run("scontrol", "update", f"nodename={node}", "state=undrain")
    if _drained(cluster, nodes):
        raise RuntimeError("Slurm keeps nodes drained that were undrained by hand")


def _drain_alone(cluster: Slurm, nodes: Sequence[str]) -> None:
    listed = ",".join(nodes)
    cluster.run("scontrol", "update", f"nodename={listed}", "state=drain", "reason=by hand")
    cluster.run("scontrol", "-o", "show", "node", listed)


@contextmanager
def _kubernetes(folder: Path) -> Iterator[Told]:
    count = SINGLES + TOGETHER
    with kubernetes(nodes=count) as cluster, cluster.client() as client:
        entry = f"{{kind: kubernetes, name: kubernetes, kubeconfig: {cluster.agent(folder)}}}"
        yield Told(
            "kubectl cordon",
            entry,
            [f"gpu{i:03d}" for i in range(1, count + 1)],
            lambda nodes: _cordoned(client, nodes),
            lambda node: cluster.kubectl("cordon", node),
            lambda nodes: cluster.kubectl("cordon", *nodes),
            lambda nodes: _uncordon(cluster, nodes),
        )


def _uncordon(cluster: Kubernetes, nodes: Sequence[str]) -> None:
    cluster.kubectl("uncordon", *nodes)


def _cordoned(client: httpx2.Client, nodes: Sequence[str]) -> set[str]:
    if len(nodes) == 1:
        found = [client.get(f"/api/v1/nodes/{nodes[0]}").json()]
    else:
        found = client.get("/api/v1/nodes").json()["items"]
    wanted = set(nodes)
    return {n["metadata"]["name"] for n in found if n["spec"].get("unschedulable")} & wanted


def measure(folder: Path) -> Iterator[Result]:
    """Both schedulers, one after the other; one that is not there says so."""
    for name, start in (("Slurm", _slurm), ("Kubernetes", lambda: _kubernetes(folder))):
        place = folder / name.lower()
        place.mkdir()
        try:
            yield from _measure(name, place, start())
        except (pytest.skip.Exception, pytest.fail.Exception) as reason:
            yield unmeasured(f"{name}: {WHAT}", BUDGET, str(reason))


def _measure(name: str, folder: Path, started: AbstractContextManager[Told]) -> Iterator[Result]:
    with started as told, postgres() as database:
        singles, together = told.nodes[:SINGLES], told.nodes[SINGLES:]
        theirs = [_seconds(lambda node=node: told.alone(node)) for node in singles[:ALONE]]  # type: ignore[misc]
        told.free(singles[:ALONE])
        theirs_together = _seconds(lambda: told.together(together))
        told.free(together)
        url = database.new_database()
        _know(url, told.nodes)
        config = folder / "foreshock.yaml"
        config.write_text(_SETTINGS.format(scheduler=told.entry))
        with serve(url, folder, "--config", str(config)) as server:
            _post(server, [singles[0]])  # the first one waits for what a server does once
            _await(told, singles[:1], time.perf_counter())
            took, lost = _singles(server, told, singles[1:])
            began = time.perf_counter()
            _post(server, together)
            ours_together = _await(told, together, began)
    yield _result(f"{name}: {WHAT}", took, lost, theirs, told.program)
    yield Result(
        f"{name}: {AT_ONCE}",
        BUDGET_AT_ONCE,
        "-" if ours_together is None else f"{ours_together:.2f} s",
        f"{theirs_together:.2f} s (one {told.program} of all)",
        None if ours_together is None else ours_together / theirs_together,
        "met" if ours_together is not None and ours_together < 5 else "not met",
        "budgets raised; PostgreSQL" if ours_together is not None else f"not within {_PATIENCE_S:.0f} s",
    )


def _singles(server: Running, told: Told, nodes: Sequence[str]) -> tuple[list[float], int]:
    """Seconds that each took, one after the other, and how many were not seen."""
    took, lost = list[float](), 0
    until = time.monotonic() + _LIMIT_S
    for node in nodes:
        if time.monotonic() > until:
            break
        began = time.perf_counter()
        _post(server, [node])
        seconds = _await(told, [node], began)
        if seconds is None:
            lost += 1
        else:
            took.append(seconds)
    return took, lost


def _await(told: Told, nodes: Sequence[str], began: float) -> float | None:
    """Seconds until all are out of service, as the scheduler tells; None: not within the patience."""
    while time.perf_counter() - began < _PATIENCE_S:
        if told.out(nodes) >= set(nodes):
            return time.perf_counter() - began
        time.sleep(_LOOK_S)
    return None


def _post(server: Running, nodes: Sequence[str]) -> None:
    """A fatal fault of each node, in one request."""
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    fault = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "action": "reboot_node"}
    now = datetime.now(UTC).isoformat()
    rest = {"time": now, "source": "kernel", "device": device, "message": "GPU has fallen off the bus."}
    body = b"\n".join(orjson.dumps({**fault, **rest, "node": node, "attributes": {}}) for node in nodes)
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    connection.request("POST", "/api/v1/events", body, {"Content-Type": "application/x-ndjson"})
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    if answer.status >= 300 or orjson.loads(said).get("rejected"):
        raise RuntimeError(f"POST /events: HTTP {answer.status} {said[:300]!r}")


def _know(url: str, nodes: Sequence[str]) -> None:
    """A database that knows the nodes, four to a rack."""
    engine = open_database(url)
    migrate(engine)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(node, f"rack{i // 4}", f"leaf{i // 16}") for i, node in enumerate(nodes)])
    engine.dispose()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _result(what: str, took: list[float], lost: int, theirs: list[float], program: str) -> Result:
    found = took or [float("inf")]
    p99 = quantile(found, 0.99)
    return Result(
        what,
        BUDGET,
        _figures(found),
        f"{_figures(theirs)} ({program})",
        quantile(found, 0.5) / quantile(theirs, 0.5),
        "met" if p99 < 1 and not lost else "not met",
        f"{len(took)} faults one by one, {lost} not within {_PATIENCE_S:.0f} s; ratio of the p50; PostgreSQL",
    )


def _figures(took: list[float]) -> str:
    p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {max(took) * 1000:.0f} ms"

"""A site whose hints live with real programs: a database, a configuration, its schedulers.

Its server comes and goes.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from real.foreshock import Running, serve
from real.programs import wait_for
from real.slurm import Slurm

from store.database.connections import migrate, open_database, writing
from store.events.append import append_nodes
from store.hints.hint_log import audit_page
from store.records.node import Node

_SETTINGS = """\
mode: {mode}
budgets: {{nodes: 1000, percent_of_nodes: 100, per_rack: 1000, per_leaf: 1000, per_hour: 1000}}
breaker: {{nodes: 1000, cluster_nodes: 1000}}
intervals: {{observe_s: 1, policy_s: 1, score_s: 0}}
schedulers:
{schedulers}
"""
# Under load a server takes its time, and the controllers, too.
PATIENCE_S = 180.0


def slurm_entry(cluster: Slurm) -> str:
    """A Slurm in the configuration."""
    return f"{{kind: slurm, name: slurm, conf: {cluster.folder / 'slurm.conf'}, calls_per_min: 100000}}"


class Site:
    """A database of nodes, and the configuration over it."""

    def __init__(self, folder: Path, nodes: Sequence[str], schedulers: Sequence[str], **settings: str) -> None:
        self.folder = folder
        self.url = settings.get("url", f"sqlite:///{folder / 'foreshock.db'}")
        self.engine: sa.Engine = open_database(self.url)
        migrate(self.engine)
        with writing(self.engine).begin() as connection:
            append_nodes(connection, [Node(node, f"r-{node}", f"l-{node}") for node in nodes])
        listed = "\n".join(f"  - {entry}" for entry in schedulers)
        text = _SETTINGS.format(mode=settings.get("mode", "act"), schedulers=listed)
        (folder / "foreshock.yaml").write_text(text)

    def serving(self, *options: str) -> AbstractContextManager[Running]:
        """The server, until the end of the block or its own."""
        return serve(self.url, self.folder, "--config", str(self.folder / "foreshock.yaml"), *options)

    def hints(self, server: Running) -> dict[str, Any]:
        """The newest hint of each node."""
        return {hint["node"]: hint for hint in server.get("/api/v1/hints?limit=1000")["items"]}

    def details(self, hint: str) -> list[Any]:
        """What the audit tells of a hint beside its state."""
        with self.engine.connect() as connection:
            return [row["detail"] for row in audit_page(connection, 1000, None, hint)]

    def steps(self, hint: str) -> list[str]:
        """The states that the audit tells of a hint, each once in a row."""
        with self.engine.connect() as connection:
            rows = [row["action"] for row in reversed(audit_page(connection, 1000, None, hint))]
        return [state for i, state in enumerate(rows) if i == 0 or rows[i - 1] != state]

    def state(self, server: Running, node: str) -> str:
        """The state of a node's newest hint; nothing where there is none."""
        return str(self.hints(server).get(node, {}).get("state", ""))

    def placement(self, server: Running, node: str, scheduler: str = "slurm") -> str:
        """What a scheduler has of it."""
        found = self.hints(server).get(node, {}).get("placements") or []
        return next((str(each["state"]) for each in found if each["scheduler"] == scheduler), "")

    def until(self, server: Running, node: str, *states: str) -> None:
        """Wait until a node's newest hint is in one of these states."""
        until(f"the hint of {node} is {states}", lambda: self.state(server, node) in states)

    def looked_again(self, server: Running, scheduler: str = "slurm") -> None:
        """Wait until a turn that began after now is over: two more have begun."""
        before = turns(server, scheduler)
        until(f"{scheduler} was looked at again", lambda: turns(server, scheduler) > before + 1)

    def looked_past_its_start(self, server: Running) -> None:
        """Wait until Slurm was looked at more than two seconds after its start, which it tells in whole ones.

        What is gone sooner passes for lost with the memory of a controller that was killed.
        """
        self.looked_again(server)
        self.looked_again(server)


def until(what: str, ready: Callable[[], bool]) -> None:
    """Wait until something holds; a server that is too busy to answer, or has no such hint yet, is asked again."""

    def holds() -> bool:
        try:
            return ready()
        except (OSError, KeyError):
            return False

    wait_for(what, holds, PATIENCE_S)


def drained(cluster: Slurm, nodes: Sequence[str]) -> set[str]:
    """Those of the nodes that Slurm tells are drained for us."""
    lines = cluster.run("scontrol", "-o", "show", "node", ",".join(nodes)).splitlines()
    ours = [line for line in lines if "DRAIN" in line.split(" State=")[1].split()[0] and " Reason=foreshock:" in line]
    return {line.split()[0].removeprefix("NodeName=") for line in ours}


def turns(server: Running, scheduler: str) -> float:
    """How many turns the loop of a scheduler has begun."""
    name = f'foreshock_loop_turns_total{{loop="scheduler-{scheduler}"}}'
    line = next((line for line in server.text("/metrics").splitlines() if line.startswith(name)), "0")
    return float(line.split()[-1])


def faults(server: Running, nodes: list[str]) -> None:
    """A GPU of each node falls off the bus."""
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    fault = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "action": "reboot_node"}
    rest = {"time": datetime.now(UTC).isoformat(), "source": "kernel", "device": device, "message": "gone"}
    body = b"\n".join(orjson.dumps({**fault, **rest, "node": node, "attributes": {}}) for node in nodes)
    until("the server takes them", lambda: _takes(server, body, len(nodes)))  # a busy one says 503


def _takes(server: Running, body: bytes, count: int) -> bool:
    try:
        return bool(server.post("/api/v1/events", body)["accepted"] == count)
    except OSError:
        return False

"""The whole of a hint's life with a real server process and a real Slurm: faults, kills, outages, people's changes."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from real.foreshock import Running, serve
from real.programs import wait_for
from real.slurm import Slurm, slurm

from schedulers.verdict import approve, withdraw
from store.append import append_nodes
from store.database import migrate, open_database, writing
from store.hint_log import audit_page
from store.hostlist import expand
from store.node import Node

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
NODES = "gpu[001-040]"
_SETTINGS = """\
mode: {mode}
budgets: {{nodes: 1000, percent_of_nodes: 100, per_rack: 1000, per_leaf: 1000, per_hour: 1000}}
breaker: {{nodes: 1000, cluster_nodes: 1000}}
intervals: {{observe_s: 1, policy_s: 1, score_s: 0}}
schedulers:
  - {{kind: slurm, name: slurm, conf: {conf}, calls_per_min: 100000}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """A controller, for all tests: each takes nodes of its own."""
    with slurm(NODES) as running:
        yield running


class Site:
    """A database, a configuration and a Slurm; its server comes and goes."""

    def __init__(self, folder: Path, cluster: Slurm, mode: str) -> None:
        self.folder, self.cluster = folder, cluster
        self.url = f"sqlite:///{folder / 'foreshock.db'}"
        self.engine: sa.Engine = open_database(self.url)
        migrate(self.engine)
        with writing(self.engine).begin() as connection:
            append_nodes(connection, [Node(node, f"r-{node}", f"l-{node}") for node in expand(NODES)])
        conf = cluster.folder / "slurm.conf"
        (folder / "foreshock.yaml").write_text(_SETTINGS.format(mode=mode, conf=conf))

    def serving(self) -> AbstractContextManager[Running]:
        """The server, until the end of the block or its own."""
        return serve(self.url, self.folder, "--config", str(self.folder / "foreshock.yaml"))

    def drained(self, nodes: list[str]) -> set[str]:
        """Those of the nodes that Slurm tells are drained for us."""
        lines = self.cluster.run("scontrol", "-o", "show", "node", ",".join(nodes)).splitlines()
        ours = [
            line for line in lines if "DRAIN" in line.split(" State=")[1].split()[0] and " Reason=foreshock:" in line
        ]
        return {line.split()[0].removeprefix("NodeName=") for line in ours}

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


def site(folder: Path, cluster: Slurm, mode: str = "act") -> Site:
    """A fresh one."""
    return Site(folder, cluster, mode)


def faults(server: Running, nodes: list[str]) -> None:
    """A GPU of each node falls off the bus."""
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    fault = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "action": "reboot_node"}
    rest = {"time": datetime.now(UTC).isoformat(), "source": "kernel", "device": device, "message": "gone"}
    body = b"\n".join(orjson.dumps({**fault, **rest, "node": node, "attributes": {}}) for node in nodes)
    wait_for("the server takes them", lambda: _takes(server, body, len(nodes)))  # a busy one says 503


def _takes(server: Running, body: bytes, count: int) -> bool:
    try:
        return bool(server.post("/api/v1/events", body)["accepted"] == count)
    except OSError:
        return False


def test_a_fault_is_a_drain_and_a_persons_resume_is_respected(tmp_path: Path, cluster: Slurm) -> None:
    """Proposed, approved by hand, sent, confirmed; resumed by hand: withdrawn, and never drained again."""
    here, node = site(tmp_path, cluster, "approve"), "gpu001"
    with here.serving() as server:
        faults(server, [node])
        wait_for("there is a proposal", lambda: here.hints(server).get(node, {}).get("state") == "proposed")
        assert here.drained([node]) == set()
        ident = here.hints(server)[node]["id"]
        with writing(here.engine).begin() as connection:  # as the command line does, in another process
            approve(connection, ident, datetime.now(UTC), "alice", "approve")
        wait_for("the node is drained", lambda: here.drained([node]) == {node})
        wait_for("it is confirmed", lambda: here.hints(server)[node]["state"] == "confirmed")
        with suppress(CalledProcessError):  # of a node without a slurmd it does it, and says that it cannot
            cluster.run("scontrol", "update", f"nodename={node}", "state=undrain")
        wait_for("the hint is withdrawn", lambda: here.hints(server)[node]["state"] == "withdrawn")
        (placement,) = here.hints(server)[node]["placements"]
        before = _observations(server)
        wait_for("Slurm was looked at again", lambda: _observations(server) > before + 1)
        assert here.drained([node]) == set()
    assert placement["state"] == "undone"
    assert here.steps(ident) == ["proposed", "approved", "sent", "confirmed", "withdrawn"]


def _observations(server: Running) -> float:
    """How many turns the loop of the scheduler has had."""
    line = next(
        line
        for line in server.text("/metrics").splitlines()
        if line.startswith('foreshock_loop_turns_total{loop="scheduler-slurm"}')
    )
    return float(line.split()[-1])


def test_what_others_drained_is_never_touched(tmp_path: Path, cluster: Slurm) -> None:
    """Before our fault, and instead of our drain."""
    here, (first, second) = site(tmp_path, cluster), ("gpu002", "gpu003")
    cluster.run("scontrol", "update", f"nodename={first}", "state=drain", "reason=maintenance")
    with here.serving() as server:
        faults(server, [first, second])
        wait_for("ours is drained", lambda: here.drained([second]) == {second})
        wait_for("theirs is noted", lambda: _placement(here, server, first) == "foreign")
        cluster.run("scontrol", "update", f"nodename={second}", "state=drain", "reason=mine now")
        wait_for("it is noted, too", lambda: _placement(here, server, second) == "foreign")
        for node in (first, second):
            server.post(f"/api/v1/hints/{here.hints(server)[node]['id']}/withdraw", b"")
        wait_for("nothing is left to do", lambda: _placement(here, server, first) == "released")
        wait_for("nor there", lambda: _placement(here, server, second) == "released")
    assert cluster.word(first, "Reason").startswith("maintenance")
    assert cluster.word(second, "Reason").startswith("mine now")
    assert all("DRAIN" in cluster.state(node) for node in (first, second))


def _placement(here: Site, server: Running, node: str) -> str:
    placements = here.hints(server).get(node, {}).get("placements") or [{"state": ""}]
    return str(placements[0]["state"])


def test_a_server_that_is_killed_in_the_middle_is_made_good_by_the_next(tmp_path: Path, cluster: Slurm) -> None:
    """SIGKILL while twenty nodes are being drained; people withdraw meanwhile; once more while they are released."""
    here, nodes = site(tmp_path, cluster), expand("gpu[011-030]")
    with here.serving() as server:
        faults(server, nodes)
        wait_for("the first is drained", lambda: bool(here.drained(nodes[:1])))
        os.kill(server.pid, signal.SIGKILL)
    with here.serving() as server:
        wait_for("all are drained", lambda: here.drained(nodes) == set(nodes))
        wait_for("all are confirmed", lambda: {hint["state"] for hint in here.hints(server).values()} == {"confirmed"})
        hints = here.hints(server)
        os.kill(server.pid, signal.SIGKILL)
    with writing(here.engine).begin() as connection:
        for node in nodes:
            withdraw(connection, hints[node]["id"], datetime.now(UTC), "alice")
    with here.serving() as server:
        wait_for("the first is free", lambda: here.drained(nodes[:1]) == set())
        os.kill(server.pid, signal.SIGKILL)
    with here.serving() as server:
        wait_for("all are free", lambda: here.drained(nodes) == set())
        wait_for("and known to be", lambda: {_placement(here, server, node) for node in nodes} == {"released"})


def test_a_drain_that_a_killed_controller_had_not_saved_is_given_again(tmp_path: Path, cluster: Slurm) -> None:
    """SIGKILL of slurmctld right after the drain was confirmed; a person's resume afterwards is respected.

    Whether it saves at once or some seconds later is its own affair: it comes back with the state of before.
    """
    here, node = site(tmp_path, cluster), "gpu007"
    nodes, before = cluster.folder / "state" / "node_state", tmp_path / "node_state"
    cluster.run("scontrol", "update", "nodename=gpu008", "comment=seen")
    wait_for("Slurm saves its nodes", nodes.is_file)
    shutil.copy2(nodes, before)
    with here.serving() as server:
        faults(server, [node])
        wait_for("it is confirmed", lambda: here.hints(server).get(node, {}).get("state") == "confirmed")
        cluster.stop_controller(signal.SIGKILL)
        shutil.copy2(before, nodes)
        cluster.start_controller()
        wait_for("it is drained again", lambda: here.drained([node]) == {node})
        wait_for("and known to be", lambda: _placement(here, server, node) == "confirmed")
        assert here.hints(server)[node]["state"] == "confirmed"
        ident = here.hints(server)[node]["id"]
        turns = _observations(server)
        wait_for("Slurm was looked at again", lambda: _observations(server) > turns + 1)
        with suppress(CalledProcessError):
            cluster.run("scontrol", "update", f"nodename={node}", "state=undrain")
        wait_for("the hint is withdrawn", lambda: here.hints(server)[node]["state"] == "withdrawn")
    assert here.drained([node]) == set()
    assert [row for row in here.details(ident) if "killed before it had saved it" in str(row.get("detail"))]


def test_an_outage_of_the_controller_delays_and_loses_nothing(tmp_path: Path, cluster: Slurm) -> None:
    """A fault and a release while slurmctld is away: both are done when it is back."""
    here, (first, second) = site(tmp_path, cluster), ("gpu005", "gpu006")
    with here.serving() as server:
        faults(server, [first])
        wait_for("the first is confirmed", lambda: here.hints(server).get(first, {}).get("state") == "confirmed")
        cluster.stop_controller()
        try:
            wait_for("it is seen to be away", lambda: 'scheduler_up{scheduler="slurm"} 0.0' in server.text("/metrics"))
            server.post(f"/api/v1/hints/{here.hints(server)[first]['id']}/withdraw", b"")
            faults(server, [second])
            wait_for("there is a hint", lambda: here.hints(server).get(second, {}).get("state") == "approved")
        finally:
            cluster.start_controller()
        wait_for("the second is confirmed", lambda: here.hints(server)[second]["state"] == "confirmed")
        wait_for("the first is free", lambda: _placement(here, server, first) == "released")
    assert here.drained([first, second]) == {second}

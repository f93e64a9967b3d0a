"""The whole of a hint's life with a real server process and a real Slurm: faults, kills, outages, people's changes."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CalledProcessError

import pytest
from approvers import ALICE
from real.slurm import Slurm, slurm

from schedulers.lifecycle.approval import approve
from schedulers.lifecycle.operator_actions import withdraw
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.records.hostlist import expand

from .hint_site import Site, drained, faults, slurm_entry, until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
NODES = "gpu[001-040]"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """A controller, for all tests: each takes nodes of its own."""
    with slurm(NODES) as running:
        yield running


def site(folder: Path, cluster: Slurm, mode: str = "act") -> Site:
    """A fresh one."""
    return Site(folder, expand(NODES), [slurm_entry(cluster)], mode=mode)


def test_a_fault_is_a_drain_and_a_persons_resume_is_respected(tmp_path: Path, cluster: Slurm) -> None:
    """Proposed, approved by hand, sent, confirmed; resumed by hand: withdrawn, and never drained again."""
    here, node = site(tmp_path, cluster, "approve"), "gpu001"
    with here.serving() as server:
        faults(server, [node])
        until("there is a proposal", lambda: here.hints(server).get(node, {}).get("state") == "proposed")
        assert drained(cluster, [node]) == set()
        ident = here.hints(server)[node]["id"]
        with writing(here.engine).begin() as connection:  # as the command line does, in another process
            approve(connection, ident, datetime.now(UTC), ALICE, Policy(mode="approve"))
        until("the node is drained", lambda: drained(cluster, [node]) == {node})
        until("it is confirmed", lambda: here.hints(server)[node]["state"] == "confirmed")
        here.looked_past_its_start(server)
        with suppress(CalledProcessError):  # of a node without a slurmd it does it, and says that it cannot
            cluster.run("scontrol", "update", f"nodename={node}", "state=undrain")
        until("the hint is withdrawn", lambda: here.hints(server)[node]["state"] == "withdrawn")
        (placement,) = here.hints(server)[node]["placements"]
        here.looked_again(server)
        assert drained(cluster, [node]) == set()
    assert placement["state"] == "undone"
    assert here.steps(ident) == ["proposed", "approved", "sent", "confirmed", "withdrawn"]


def test_what_others_drained_is_never_touched(tmp_path: Path, cluster: Slurm) -> None:
    """Before our fault, and instead of our drain."""
    here, (first, second) = site(tmp_path, cluster), ("gpu002", "gpu003")
    cluster.run("scontrol", "update", f"nodename={first}", "state=drain", "reason=maintenance")
    with here.serving() as server:
        faults(server, [first, second])
        until("ours is drained", lambda: drained(cluster, [second]) == {second})
        until("theirs is noted", lambda: here.placement(server, first) == "foreign")
        cluster.run("scontrol", "update", f"nodename={second}", "state=drain", "reason=mine now")
        until("it is noted, too", lambda: here.placement(server, second) == "foreign")
        for node in (first, second):
            server.post(f"/api/v1/hints/{here.hints(server)[node]['id']}/withdraw", b"")
        until("nothing is left to do", lambda: here.placement(server, first) == "released")
        until("nor there", lambda: here.placement(server, second) == "released")
    assert cluster.word(first, "Reason").startswith("maintenance")
    assert cluster.word(second, "Reason").startswith("mine now")
    assert all("DRAIN" in cluster.state(node) for node in (first, second))


def test_a_server_that_is_killed_in_the_middle_is_made_good_by_the_next(tmp_path: Path, cluster: Slurm) -> None:
    """SIGKILL while twenty nodes are being drained; people withdraw meanwhile; once more while they are released."""
    here, nodes = site(tmp_path, cluster), expand("gpu[011-030]")
    with here.serving() as server:
        faults(server, nodes)
        until("the first is drained", lambda: bool(drained(cluster, nodes[:1])))
        os.kill(server.pid, signal.SIGKILL)
    with here.serving() as server:
        until("all are drained", lambda: drained(cluster, nodes) == set(nodes))
        until("all are confirmed", lambda: {hint["state"] for hint in here.hints(server).values()} == {"confirmed"})
        hints = here.hints(server)
        os.kill(server.pid, signal.SIGKILL)
    with writing(here.engine).begin() as connection:
        for node in nodes:
            withdraw(connection, hints[node]["id"], datetime.now(UTC), "alice")
    with here.serving() as server:
        until("the first is free", lambda: drained(cluster, nodes[:1]) == set())
        os.kill(server.pid, signal.SIGKILL)
    with here.serving() as server:
        until("all are free", lambda: drained(cluster, nodes) == set())
        until("and known to be", lambda: {here.placement(server, node) for node in nodes} == {"released"})


def test_a_drain_that_a_killed_controller_had_not_saved_is_given_again(tmp_path: Path, cluster: Slurm) -> None:
    """SIGKILL of slurmctld right after the drain was confirmed; a person's resume afterwards is respected.

    Whether it saves at once or some seconds later is its own affair: it comes back with the state of before.
    """
    here, node = site(tmp_path, cluster), "gpu007"
    nodes, before = cluster.folder / "state" / "node_state", tmp_path / "node_state"
    cluster.run("scontrol", "update", "nodename=gpu008", "comment=seen")
    until("Slurm saves its nodes", nodes.is_file)
    shutil.copy2(nodes, before)
    with here.serving() as server:
        faults(server, [node])
        until("it is confirmed", lambda: here.hints(server).get(node, {}).get("state") == "confirmed")
        cluster.stop_controller(signal.SIGKILL)
        shutil.copy2(before, nodes)
        cluster.start_controller()
        until("it is drained again", lambda: drained(cluster, [node]) == {node})
        until("and known to be", lambda: here.placement(server, node) == "confirmed")
        assert here.hints(server)[node]["state"] == "confirmed"
        ident = here.hints(server)[node]["id"]
        here.looked_past_its_start(server)
        with suppress(CalledProcessError):
            cluster.run("scontrol", "update", f"nodename={node}", "state=undrain")
        until("the hint is withdrawn", lambda: here.hints(server)[node]["state"] == "withdrawn")
    assert drained(cluster, [node]) == set()
    assert [row for row in here.details(ident) if "killed before it had saved it" in str(row.get("detail"))]


def test_an_outage_of_the_controller_delays_and_loses_nothing(tmp_path: Path, cluster: Slurm) -> None:
    """A fault and a release while slurmctld is away: both are done when it is back."""
    here, (first, second) = site(tmp_path, cluster), ("gpu005", "gpu006")
    with here.serving() as server:
        faults(server, [first])
        until("the first is confirmed", lambda: here.hints(server).get(first, {}).get("state") == "confirmed")
        cluster.stop_controller()
        try:
            until("it is seen to be away", lambda: 'scheduler_up{scheduler="slurm"} 0.0' in server.text("/metrics"))
            server.post(f"/api/v1/hints/{here.hints(server)[first]['id']}/withdraw", b"")
            faults(server, [second])
            until("there is a hint", lambda: here.hints(server).get(second, {}).get("state") == "approved")
        finally:
            cluster.start_controller()
        until("the second is confirmed", lambda: here.hints(server)[second]["state"] == "confirmed")
        until("the first is free", lambda: here.placement(server, first) == "released")
    assert drained(cluster, [first, second]) == {second}

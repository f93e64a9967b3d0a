"""A hint's life with a real Kubernetes API server, with Slurm beside it, and with several server processes."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest
from real.kubernetes import RBAC, Kubernetes
from real.postgres import Postgres
from real.slurm import Slurm, slurm

from schedulers.kubernetes.node import SLINKY_REASON

from .hint_site import Site, drained, faults, slurm_entry, until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture
def nodes(kubernetes_cluster: Kubernetes) -> Iterator[list[str]]:
    """Three fresh nodes of Kubernetes."""
    kubernetes_cluster.kubectl("apply", "-f", str(RBAC))
    with kubernetes_cluster.nodes(3) as names:
        yield names


def kubernetes_entry(cluster: Kubernetes, folder: Path) -> str:
    """A Kubernetes in the configuration, with the least rights."""
    return (
        f"{{kind: kubernetes, name: kube, kubeconfig: {cluster.agent(folder)}, timeout_s: 4, lease_s: 5, slinky: true}}"
    )


def cordoned(cluster: Kubernetes, node: str) -> bool:
    """Whether no new pod may go there."""
    return bool(cluster.node(node)["spec"].get("unschedulable"))


def test_the_life_of_hints_in_kubernetes(tmp_path: Path, kubernetes_cluster: Kubernetes, nodes: list[str]) -> None:
    """Fault, cordon, SIGKILL of the server, a person's uncordon, an outage of the API, the release."""
    cluster, (first, second, third) = kubernetes_cluster, nodes
    here = Site(tmp_path, nodes, [kubernetes_entry(cluster, tmp_path)])
    cluster.kubectl("cordon", third)
    with here.serving() as server:
        faults(server, nodes)
        until("they are cordoned", lambda: cordoned(cluster, first) and cordoned(cluster, second))
        here.until(server, first, "confirmed")
        here.until(server, second, "confirmed")
        until("another's cordon is noted", lambda: here.placement(server, third, "kube") == "foreign")
        ident = here.hints(server)[first]["id"]
        os.kill(server.pid, signal.SIGKILL)
    cluster.kubectl("uncordon", first)
    with here.serving() as server:
        here.until(server, first, "withdrawn")
        assert here.placement(server, first, "kube") == "undone"
        assert here.steps(ident) == ["approved", "sent", "confirmed", "withdrawn"]
        cluster.stop_api()
        try:
            until("it is seen to be away", lambda: 'scheduler_up{scheduler="kube"} 0.0' in server.text("/metrics"))
            for node in (second, third):
                server.post(f"/api/v1/hints/{here.hints(server)[node]['id']}/withdraw", b"")
        finally:
            cluster.start_api()
        until("the second is released", lambda: here.placement(server, second, "kube") == "released")
        here.looked_again(server, "kube")
        assert [cordoned(cluster, node) for node in nodes] == [False, False, True]


def test_two_schedulers_over_the_same_nodes(tmp_path: Path, kubernetes_cluster: Kubernetes, nodes: list[str]) -> None:
    """One hint holds in both; what a person lets go in one is let go in the other; an outage delays one alone.

    So it does where slurm-operator has drained Slurm's node for our cordon, by the reason that we left it: what it does
    is done here by hand, as its page on external health checkers tells it.
    """
    cluster, (first, second, third) = kubernetes_cluster, nodes
    with slurm(",".join(nodes)) as controller:
        entries = [slurm_entry(controller), kubernetes_entry(cluster, tmp_path)]
        here = Site(tmp_path, nodes, entries)
        with here.serving() as server:
            faults(server, [first])
            here.until(server, first, "confirmed")
            assert (drained(controller, nodes), cordoned(cluster, first)) == ({first}, True)
            here.looked_past_its_start(server)
            with suppress(CalledProcessError):  # of a node without a slurmd it does it, and says that it cannot
                controller.run("scontrol", "update", f"nodename={first}", "state=undrain")
            here.until(server, first, "withdrawn")
            until("Kubernetes lets go", lambda: not cordoned(cluster, first))
            _away_alone(here, server, (controller, cluster), second)
            assert drained(controller, nodes) == {second}
            _drained_by_operator(here, server, (controller, cluster), third)


def _drained_by_operator(here: Site, server: Any, schedulers: tuple[Slurm, Kubernetes], node: str) -> None:
    """One hint, held in Kubernetes and by slurm-operator in Slurm; its release leaves Slurm's node to the operator."""
    controller, cluster = schedulers
    reason = "slurm-operator: foreshock: Xid 79 id=h"
    controller.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
    here.looked_again(server)
    faults(server, [node])
    here.until(server, node, "confirmed")
    assert (here.placement(server, node, "slurm"), here.placement(server, node, "kube")) == ("foreign", "confirmed")
    hint = here.hints(server)[node]["id"]
    left = cluster.node(node)["metadata"]["annotations"][SLINKY_REASON]
    assert (left.startswith("foreshock: "), left.endswith(f" id={hint}")) == (True, True)
    server.post(f"/api/v1/hints/{hint}/withdraw", b"")
    until("Kubernetes lets go", lambda: not cordoned(cluster, node))
    assert SLINKY_REASON not in cluster.node(node)["metadata"].get("annotations", {})
    assert reason in controller.run("scontrol", "-o", "show", "node", node)


def _away_alone(here: Site, server: Any, schedulers: tuple[Slurm, Kubernetes], node: str) -> None:
    """While Slurm is away Kubernetes holds the node; the hint is confirmed once both do."""
    controller, cluster = schedulers
    controller.stop_controller()
    try:
        faults(server, [node])
        until("Kubernetes holds it", lambda: cordoned(cluster, node))
        until("that is read back", lambda: here.placement(server, node, "kube") == "confirmed")
        assert here.state(server, node) == "sent"
    finally:
        controller.start_controller()
    here.until(server, node, "confirmed")


def test_whichever_process_takes_a_fault_its_node_is_drained(tmp_path: Path, postgres_server: Postgres) -> None:
    """Of two processes one holds the lease and orders; each request goes to either, as the kernel likes."""
    names = [f"gpu{i:03d}" for i in range(1, 11)]
    with slurm("gpu[001-010]") as controller:
        here = Site(tmp_path, names, [slurm_entry(controller)], url=postgres_server.new_database())
        with here.serving("--processes", "2") as server:
            for node in names:
                faults(server, [node])
            until("all are drained", lambda: drained(controller, names) == set(names))
            for node in names:
                here.until(server, node, "confirmed")
        here.engine.dispose()

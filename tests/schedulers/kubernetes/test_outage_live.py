"""Outages, restarts, other writers, tokens that end: the next look and the next order mend it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.kubernetes import Kubernetes as Cluster
from real.patience import patience
from real.programs import wait_for

from schedulers.kubernetes.access import KubernetesSettings, find_access
from schedulers.kubernetes.actuator import Kubernetes
from schedulers.kubernetes.client import KubernetesClient
from schedulers.kubernetes.lease import WriterLease
from schedulers.reconcile.actuator import SchedulerAwayError

from .live_orders import acting, agent, await_free, bring, hold_of, order

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture
def node(kubernetes_cluster: Cluster) -> Iterator[str]:
    """A fresh node."""
    with kubernetes_cluster.nodes(1) as (name,):
        yield name


def test_an_outage_is_told_and_over_when_it_is_over(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """Changes that were made meanwhile are seen; orders are given again by who keeps them."""
    with agent(kubernetes_cluster, tmp_path) as actuator:
        bring(actuator, node, "cordon")
        kubernetes_cluster.stop_api()
        with pytest.raises(SchedulerAwayError, match=r"127\.0\.0\.1"):
            actuator.observe()
        with pytest.raises(SchedulerAwayError):
            actuator.carry_out([order(node, "release")])
        kubernetes_cluster.start_api()
        kubernetes_cluster.kubectl("uncordon", node)
        assert hold_of(actuator, node).action == "avoid"
        assert bring(actuator, node, "release").result == "done"
        await_free(actuator, node)


def test_a_server_that_hangs_is_an_outage_too(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """It takes connections and says nothing: no old news are passed off as new."""
    with agent(kubernetes_cluster, tmp_path, timeout_s=patience(1.0)) as actuator:
        actuator.observe()
        server = kubernetes_cluster.processes["kube-apiserver"]
        server.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(SchedulerAwayError, match=r"Timeout"):
                actuator.observe()
            with pytest.raises(SchedulerAwayError, match=r"Timeout"):
                bring(actuator, node, "cordon")
        finally:
            server.send_signal(signal.SIGCONT)
        wait_for("it answers", kubernetes_cluster.answers)
        assert hold_of(actuator, node).node == node


KILLED = """
import os, sys
from schedulers.kubernetes.actuator import Kubernetes
from schedulers.kubernetes.client import KubernetesClient
from schedulers.kubernetes.access import KubernetesSettings
from schedulers.reconcile.actuator import Order
from datetime import UTC, datetime, timedelta

config, node, action, calls = sys.argv[1:]
left = int(calls)
call = KubernetesClient.call

def dying(*words, **more):
    global left
    answer = call(*words, **more)
    if words[1] != "GET":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)  # the server has it, nobody here knows
    return answer

KubernetesClient.call = dying
actuator = Kubernetes(KubernetesSettings("sim", kubeconfig=config, identity="one"))
until = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
actuator.carry_out([Order(node, "h1", action, "foreshock: xid 79 on gpu 0", until)])
"""


@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("action", ["watch", "cordon"])
def test_killed_in_mid_action_the_next_process_goes_on(
    kubernetes_cluster: Cluster, tmp_path: Path, node: str, action: str, writes: int
) -> None:
    """After the lease, the patch, the Event: it sees what is there, orders again, and ends in the same state."""
    config = kubernetes_cluster.agent(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(config), node, action, str(writes)], check=False, timeout=patience(60)
    )
    assert done.returncode == -signal.SIGKILL
    with acting(config, identity="one") as actuator:
        found = hold_of(actuator, node).action
        assert found == (action if writes > 1 else None)
        assert bring(actuator, node, action).result == "done"  # type: ignore[arg-type]
        hold = hold_of(actuator, node)
        assert (hold.action, hold.hint) == (action, "h1")
        assert bring(actuator, node, "release").result == "done"
        await_free(actuator, node)


def test_one_writes_and_the_other_waits(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """Both may look; who closes lets the next one write at once."""
    config = kubernetes_cluster.agent(tmp_path)
    with acting(config, identity="one") as one, acting(config, identity="two") as two:
        assert bring(one, node, "cordon").result == "done"
        came = bring(two, node, "release")
        assert came.result == "retry"
        assert came.detail == "another Foreshock writes to this cluster: one (lease foreshock/foreshock)"
        assert hold_of(two, node).action == "cordon"
        one.close()
        assert bring(two, node, "release").result == "done"
        await_free(two, node)


def test_a_lease_runs_out_by_our_own_clock(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    """However wrong the clock of who held it; one that is renewed does not."""
    settings = KubernetesSettings("sim", lease_s=30.0)
    client = KubernetesClient(find_access(str(kubernetes_cluster.agent(tmp_path)), None), settings)
    now = [1000.0]
    dead = WriterLease(client, "foreshock", "dead", 30.0, clock=lambda: now[0])
    alive = WriterLease(client, "foreshock", "alive", 30.0, clock=lambda: now[0])
    try:
        assert dead.acquire() is None
        assert alive.acquire() is not None
        now[0] += 29.0
        assert dead.acquire() is None  # renewed
        assert alive.acquire() is not None
        now[0] += 5.0
        assert alive.acquire() is not None  # 34 s after it was first seen, 5 s after it was renewed
        now[0] += 26.0
        assert alive.acquire() is None
        assert dead.acquire() is not None
        spec = kubernetes_cluster.get("/apis/coordination.k8s.io/v1/namespaces/foreshock/leases/foreshock")["spec"]
        assert spec["holderIdentity"] == "alive"
        assert spec["leaseTransitions"] >= 1
    finally:
        alive.release()
        client.close()


def test_a_lease_that_has_run_out_is_not_given_back(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    """Servers of one database share an identity: the one that stops late would give away what its heir holds."""
    settings = KubernetesSettings("sim", lease_s=30.0)
    client = KubernetesClient(find_access(str(kubernetes_cluster.agent(tmp_path)), None), settings)
    now = [1000.0]
    late, heir = (WriterLease(client, "foreshock", "both", 30.0, clock=lambda: now[0]) for _ in range(2))

    def holder() -> str:
        found = kubernetes_cluster.get("/apis/coordination.k8s.io/v1/namespaces/foreshock/leases/foreshock")
        return str(found["spec"]["holderIdentity"])

    try:
        assert late.acquire() is None
        now[0] += 30.0
        assert heir.acquire() is None
        late.release()
        assert holder() == "both"
        heir.release()
        assert holder() == ""
    finally:
        client.close()


def test_a_lease_that_is_ours_costs_no_request_for_a_while(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    """It is renewed at a third of its time."""
    client = KubernetesClient(find_access(str(kubernetes_cluster.agent(tmp_path)), None), KubernetesSettings("sim"))
    now = [0.0]
    lease = WriterLease(client, "foreshock", "me", 30.0, clock=lambda: now[0])
    path = "/apis/coordination.k8s.io/v1/namespaces/foreshock/leases/foreshock"
    try:
        assert lease.acquire() is None
        before = kubernetes_cluster.get(path)["metadata"]["resourceVersion"]
        now[0] += 9.9
        assert lease.acquire() is None
        assert kubernetes_cluster.get(path)["metadata"]["resourceVersion"] == before
        now[0] += 0.2
        assert lease.acquire() is None
        assert kubernetes_cluster.get(path)["metadata"]["resourceVersion"] != before
    finally:
        lease.release()
        client.close()


def test_a_rotated_token_is_taken_up(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """The file is read at each request; a token that is refused is told of with its remedy."""
    config = kubernetes_cluster.agent(tmp_path)
    with acting(config) as actuator:
        assert bring(actuator, node, "avoid").result == "done"
        (tmp_path / "token").write_text("not-a-token")
        came = bring(actuator, node, "release")
        assert (came.result, "401" in came.detail) == ("retry", True)
        with pytest.raises(SchedulerAwayError, match=r"401.*the token or certificate is not accepted"):
            actuator.observe()
        (tmp_path / "token").write_text(kubernetes_cluster.service_token())
        assert hold_of(actuator, node).action == "avoid"
        assert bring(actuator, node, "release").result == "done"


def test_a_kubeconfig_that_has_been_mended_is_read_again(
    kubernetes_cluster: Cluster, tmp_path: Path, node: str
) -> None:
    """After a refusal; certificates that are renewed in place come in the same way."""
    config = kubernetes_cluster.kubeconfig(tmp_path / "mended.conf", {"token": "wrong"})
    with acting(config) as actuator:
        with pytest.raises(SchedulerAwayError, match="401"):
            actuator.observe()
        kubernetes_cluster.kubeconfig(config, {"token": kubernetes_cluster.service_token()})
        assert hold_of(actuator, node).node == node


def test_a_certificate_opens_the_door_too(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """As in most kubeconfigs of administrators."""
    config = kubernetes_cluster.kubeconfig(tmp_path / "cert.conf", kubernetes_cluster.signed("ops"))
    with acting(config) as actuator:
        assert bring(actuator, node, "avoid").result == "done"
        assert bring(actuator, node, "release").result == "done"


def test_a_plugin_s_token_opens_the_door(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """One that has ended is asked for again, at once."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ended\n{kubernetes_cluster.service_token()}\n")
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!/bin/sh\nread token <{tokens}; sed -i 1d {tokens}\n"
        'printf \'{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "%s"}}\' "$token"\n'
    )
    plugin.chmod(0o755)
    config = kubernetes_cluster.kubeconfig(
        tmp_path / "exec.conf", {"exec": {"command": "./plugin", "apiVersion": "v1"}}
    )
    with acting(config) as actuator:
        assert hold_of(actuator, node).action is None
        assert tokens.read_text() == ""


def test_who_has_no_rights_is_told_which_are_needed(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """Neither as an outage without a word nor as something that can never be."""
    kubernetes_cluster.kubectl("create", "serviceaccount", "nobody", "-n", "foreshock")
    with acting(kubernetes_cluster.agent(tmp_path, "nobody")) as actuator:
        with pytest.raises(SchedulerAwayError, match=r"403.*rbac\.yaml"):
            actuator.observe()
        came = bring(actuator, node, "cordon")
        assert (came.result, "rbac.yaml" in came.detail) == ("retry", True)


def test_making_one_opens_no_connection(tmp_path: Path) -> None:
    """What is wrong with the kubeconfig is told when it is asked, and may have been mended by then."""
    with acting(tmp_path / "later.conf") as actuator:
        assert isinstance(actuator, Kubernetes)
        assert actuator.address.endswith("later.conf")
        with pytest.raises(SchedulerAwayError, match=r"later\.conf: No such file"):
            actuator.observe()

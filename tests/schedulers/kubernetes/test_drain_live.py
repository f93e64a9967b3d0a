"""Drains against a real API server: who must go goes within every disruption budget, and nobody else does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

from schedulers.kubernetes.actuator import Kubernetes

from .live_orders import agent, await_free, bring, hold_of
from .workload import await_running, budget, create, daemon_set, pod, running

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture
def node(kubernetes_cluster: Cluster) -> Iterator[str]:
    """A fresh node."""
    with kubernetes_cluster.nodes(1) as (name,):
        yield name


@pytest.fixture
def evicting(kubernetes_cluster: Cluster, tmp_path: Path) -> Iterator[Kubernetes]:
    """An actuator that may evict, with the rights that deploy/kubernetes/rbac-evict.yaml adds."""
    kubernetes_cluster.kubectl("apply", "-f", str(RBAC.with_name("rbac-evict.yaml")))
    with agent(kubernetes_cluster, tmp_path, evict=True) as acting:
        yield acting


def drain(actuator: Kubernetes, node: str) -> None:
    """Order it until it is done, as the reconciler does."""
    wait_for("the node is drained", lambda: bring(actuator, node, "drain").result == "done")


def test_without_leave_to_evict_pods_end_by_themselves(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """The default: a drain keeps new work off, and old work goes on."""
    create(kubernetes_cluster, pod("train-a", node))
    await_running(kubernetes_cluster, node, 1)
    with agent(kubernetes_cluster, tmp_path) as actuator:
        assert bring(actuator, node, "drain").result == "done"
        hold = hold_of(actuator, node)
    assert hold.action == "drain"
    assert running(kubernetes_cluster, node) == {"train-a"}


def test_a_drain_is_one_when_the_last_pod_has_gone(
    kubernetes_cluster: Cluster, evicting: Kubernetes, node: str
) -> None:
    """Until then it is read back as a cordon, and ordered again."""
    create(kubernetes_cluster, pod("train-b", node), pod("train-c", node))
    await_running(kubernetes_cluster, node, 2)
    came = bring(evicting, node, "drain")
    assert came.result == "retry"
    assert came.detail.startswith("2 pods left, 0 held back")
    assert hold_of(evicting, node).action == "cordon"
    drain(evicting, node)
    hold = hold_of(evicting, node)
    assert (hold.action, hold.hint) == ("drain", "h1")
    assert bring(evicting, node, "release").result == "done"
    assert "foreshock" not in str(kubernetes_cluster.node(node)["metadata"].get("annotations"))


def test_a_disruption_budget_is_kept_without_waiting(
    kubernetes_cluster: Cluster, evicting: Kubernetes, node: str
) -> None:
    """Its pod stays, the turn goes on and says which; once the budget allows it, the pod goes."""
    labels = {"app": "held"}
    create(kubernetes_cluster, pod("held-a", node, labels), budget("held", labels, 1))
    await_running(kubernetes_cluster, node, 1)
    path = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets/held"
    wait_for("the budget is counted", lambda: kubernetes_cluster.get(path)["status"].get("currentHealthy") == 1)
    for _ in range(3):
        came = bring(evicting, node, "drain")
        assert came.result == "retry"
        assert "1 pod left, 1 held back (default/held-a: HTTP 429" in came.detail
    assert running(kubernetes_cluster, node) == {"held-a"}
    assert "ForeshockEvictionHeldBack" in kubernetes_cluster.kubectl("describe", "node", node)
    kubernetes_cluster.delete(path)
    drain(evicting, node)
    assert running(kubernetes_cluster, node) == set()


def test_who_need_not_go_stays(kubernetes_cluster: Cluster, evicting: Kubernetes, node: str) -> None:
    """A DaemonSet's pod, the kubelet's own, one that nobody makes anew, one that has opted out, the system's."""
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    kept: list[dict[str, Any]] = [
        pod("kept-mirror", node, owned=False, **mirror),
        pod("kept-alone", node, owned=False),
        pod("kept-out", node, {"foreshock.dev/opt-out": "true"}),
        pod("kept-system", node, namespace="kube-system"),
    ]
    create(kubernetes_cluster, *kept, pod("goes-0", node), daemon_set("everywhere", node))
    await_running(kubernetes_cluster, node, 6)
    drain(evicting, node)
    left = running(kubernetes_cluster, node)
    assert {name for name in left if not name.startswith("everywhere")} == {row["metadata"]["name"] for row in kept}
    assert len(left) == 5
    kubernetes_cluster.delete("/apis/apps/v1/namespaces/default/daemonsets/everywhere")


def test_a_release_stops_a_drain_half_way(kubernetes_cluster: Cluster, evicting: Kubernetes, node: str) -> None:
    """What has not been evicted stays where it is."""
    labels = {"app": "half"}
    create(kubernetes_cluster, pod("half-a", node, labels), budget("half", labels, 1))
    await_running(kubernetes_cluster, node, 1)
    path = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets/half"
    wait_for("the budget is counted", lambda: kubernetes_cluster.get(path)["status"].get("currentHealthy") == 1)
    assert bring(evicting, node, "drain").result == "retry"
    assert bring(evicting, node, "release").result == "done"
    await_free(evicting, node)
    assert running(kubernetes_cluster, node) == {"half-a"}
    kubernetes_cluster.delete(path)

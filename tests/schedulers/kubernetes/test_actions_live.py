"""Every action against a real API server: what kubectl sees, what is read back, what the scheduler does."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

from schedulers.kubernetes.actuator import Kubernetes
from schedulers.reconcile.actuator import OrderReport
from store.records.hint import HintAction

from .live_orders import REASON, agent, bring, hold_of, is_brought, order, others

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture(scope="module")
def actuator(kubernetes_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """One with the least rights, for all that are here."""
    with agent(kubernetes_cluster, tmp_path_factory.mktemp("agent")) as acting:
        yield acting


@pytest.fixture
def node(kubernetes_cluster: Cluster) -> Iterator[str]:
    """A fresh node."""
    with kubernetes_cluster.nodes(1) as (name,):
        yield name


def events_of(cluster: Cluster, name: str) -> list[tuple[str, str, int]]:
    """Type, reason and count of the Events about an object."""
    words = ["get", "events", "-A", "--field-selector", f"involvedObject.name={name}", "-o", "json"]
    found = json.loads(cluster.kubectl(*words))["items"]
    return sorted((e["type"], e["reason"], e["count"]) for e in found if e["source"].get("component") == "foreshock")


@pytest.mark.parametrize("action", ["watch", "avoid", "cordon", "drain"])
def test_each_action_is_read_back_and_released(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str, action: HintAction
) -> None:
    """Under its hint; the rest of the node stays, and the release leaves nothing of ours that keeps work off."""
    before = others(kubernetes_cluster.node(node))
    assert bring(actuator, node, action) == OrderReport(node, "done")
    wait_for(f"it is {action}", partial(is_brought, actuator, node, action, action))
    hold = hold_of(actuator, node)
    assert (hold.action, hold.hint, hold.foreign) == (action, "h1", None)
    assert "SchedulingDisabled" in hold.state or action in ("watch", "avoid")
    assert bring(actuator, node, "release") == OrderReport(node, "done")
    wait_for("it is released", partial(is_brought, actuator, node, "release", None))
    hold = hold_of(actuator, node)
    assert (hold.action, hold.hint, hold.state) == (None, None, "Ready")
    after = kubernetes_cluster.node(node)
    assert not after["spec"].get("unschedulable")
    assert not [key for key in after["metadata"].get("annotations", {}) if key.startswith("foreshock.dev")]
    wait_for("the node is as before", lambda: others(kubernetes_cluster.node(node)) == before)


def test_a_hint_that_is_raised_and_loweredis_brought_along(actuator: Kubernetes, node: str) -> None:
    """Each step is the state that was asked for, not more."""
    steps: list[HintAction] = ["watch", "avoid", "cordon", "drain", "cordon", "avoid", "watch", "cordon", "release"]
    for step in steps:
        assert bring(actuator, node, step).result == "done"
        wanted = None if step == "release" else step
        wait_for(f"it is {step}", partial(is_brought, actuator, node, step, wanted))


def test_our_condition_stands_beside_the_kubelet_s(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str
) -> None:
    """Which goes on to say how it is: neither takes the other's away."""
    bring(actuator, node, "watch")
    kubelets = kubernetes_cluster.kubelets
    assert kubelets is not None
    seen = kubelets.rounds
    wait_for("a heartbeat", lambda: kubelets.rounds > seen + 25)
    conditions = {c["type"]: c for c in kubernetes_cluster.node(node)["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["ForeshockRisk"]["status"] == "True"
    assert conditions["ForeshockRisk"]["reason"] == "ForeshockWatches"


def test_an_event_tells_each_change_and_repeats_are_counted(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str
) -> None:
    """`kubectl describe node` shows them; what changes nothing tells nothing."""
    for step in ("cordon", "cordon", "release", "cordon"):
        bring(actuator, node, step)  # type: ignore[arg-type]
    assert events_of(kubernetes_cluster, node) == [
        ("Normal", "ForeshockReleased", 1),
        ("Warning", "ForeshockCordoned", 2),
    ]
    assert f"{REASON} id=h1" in kubernetes_cluster.kubectl("describe", "node", node)


def test_an_event_that_has_been_dropped_is_written_anew(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str
) -> None:
    """The API server keeps Events for an hour."""
    bring(actuator, node, "avoid")
    for event in kubernetes_cluster.get(f"/api/v1/events?fieldSelector=involvedObject.name={node}")["items"]:
        kubernetes_cluster.delete(f"/api/v1/namespaces/default/events/{event['metadata']['name']}")
    bring(actuator, node, "release")
    bring(actuator, node, "avoid")
    assert ("Warning", "ForeshockAvoided", 1) in events_of(kubernetes_cluster, node)


def test_the_scheduler_heeds_what_was_asked(kubernetes_cluster: Cluster, actuator: Kubernetes) -> None:
    """No pod comes to a cordoned node; one that may go elsewhere leaves an avoided one."""
    with kubernetes_cluster.nodes(3) as (cordoned, avoided, free):
        for name in (cordoned, avoided, free):
            kubernetes_cluster.kubectl("label", "node", name, "pool=heed")
        actuator.carry_out([order(cordoned, "cordon"), order(avoided, "avoid")])
        pods = [_pod(f"heed-{i}", {"pool": "heed"}) for i in range(4)]
        kubernetes_cluster.apply(*pods)
        path = "/api/v1/namespaces/default/pods?labelSelector=app=heed"
        wait_for(
            "the pods run", lambda: all(p["status"].get("phase") == "Running" for p in _items(path, kubernetes_cluster))
        )
        assert {pod["spec"]["nodeName"] for pod in _items(path, kubernetes_cluster)} == {free}
        for i in range(4):
            kubernetes_cluster.delete(f"/api/v1/namespaces/default/pods/heed-{i}")


def test_a_hundred_nodes_at_once(kubernetes_cluster: Cluster, actuator: Kubernetes) -> None:
    """Each has its report, and is read back."""
    with kubernetes_cluster.nodes(40) as names:
        reports = actuator.carry_out([order(name, "cordon", f"h-{name}") for name in names])
        assert {(r.subject, r.result) for r in reports} == {(name, "done") for name in names}
        holds = {hold.node: (hold.action, hold.hint) for hold in actuator.observe()}
        assert all(holds[name] == ("cordon", f"h-{name}") for name in names)


def test_a_node_that_is_not_there_is_absent(actuator: Kubernetes) -> None:
    """And stops none of the others."""
    assert bring(actuator, "gpu-never", "cordon").result == "absent"


def test_a_node_that_joins_or_leaves_is_seen(kubernetes_cluster: Cluster, actuator: Kubernetes) -> None:
    """By the watch, without another list."""
    with kubernetes_cluster.nodes(1) as (name,):
        wait_for("it is seen", lambda: name in {hold.node for hold in actuator.observe()})
    wait_for("it is gone", lambda: name not in {hold.node for hold in actuator.observe()})


def test_opted_out_nodes_are_refused(kubernetes_cluster: Cluster, actuator: Kubernetes, node: str) -> None:
    """The label is the operator's word."""
    kubernetes_cluster.kubectl("label", "node", node, "foreshock.dev/opt-out=true")
    wait_for("it is seen", lambda: hold_of(actuator, node).is_opted_out)
    assert bring(actuator, node, "cordon").result == "refused"
    assert not kubernetes_cluster.node(node)["spec"].get("unschedulable")


def test_a_dry_run_writes_nothing(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """The API server checks each write, rights included, and keeps none."""
    with agent(kubernetes_cluster, tmp_path, dry_run=True, identity="trial") as trial:
        for action in ("watch", "avoid", "cordon"):
            assert bring(trial, node, action).detail.startswith("dry run")  # type: ignore[arg-type]
        assert hold_of(trial, node).action is None
    leases = kubernetes_cluster.get("/apis/coordination.k8s.io/v1/namespaces/foreshock/leases")["items"]
    assert all(found["spec"]["holderIdentity"] != "trial" for found in leases)
    assert events_of(kubernetes_cluster, node) == []
    found = kubernetes_cluster.node(node)
    assert "unschedulable" not in found["spec"]
    assert "annotations" not in found["metadata"] or "foreshock" not in str(found["metadata"]["annotations"])


def _pod(name: str, selector: dict[str, str]) -> dict[str, object]:
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "nodeSelector": selector,
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"name": name, "namespace": "default", "labels": {"app": name.partition("-")[0]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _phase(cluster: Cluster, name: str) -> str:
    found: str = cluster.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase", "")
    return found


def _items(path: str, cluster: Cluster) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = cluster.get(path)["items"]
    return found

"""Orders, actuators and what is read back, for the tests of Kubernetes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.kubernetes.actuator import Kubernetes
from schedulers.reconcile.actuator import Hold, Order, OrderReport
from store.records.hint import HintAction

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
UNTIL = NOW + timedelta(days=1)
REASON = "foreshock: xid 79 on gpu 0"


def order(node: str, action: HintAction, hint: str = "h1", reason: str = REASON) -> Order:
    """An order for a node."""
    return Order(node, hint, action, reason, UNTIL)


@contextmanager
def acting(config: Path, **settings: Any) -> Iterator[Kubernetes]:
    """An actuator over a kubeconfig, closed at the end."""
    actuator = Kubernetes(KubernetesSettings("sim", kubeconfig=str(config), **settings))
    try:
        yield actuator
    finally:
        actuator.close()


@contextmanager
def agent(cluster: Cluster, folder: Path, **settings: Any) -> Iterator[Kubernetes]:
    """An actuator with the rights of deploy/kubernetes/rbac.yaml."""
    with acting(cluster.agent(folder), **settings) as actuator:
        yield actuator


def hold_of(actuator: Kubernetes, node: str) -> Hold:
    """What is told of one node."""
    return next(hold for hold in actuator.observe() if hold.node == node)


def bring(actuator: Kubernetes, node: str, action: HintAction, hint: str = "h1") -> OrderReport:
    """What comes of one order."""
    (report,) = actuator.carry_out([order(node, action, hint)])
    assert report.subject == node
    return report


def is_brought(actuator: Kubernetes, node: str, step: HintAction, wanted: HintAction | None) -> bool:
    """Whether it is; else it is ordered again: the node's own controller may write a taint back that it had read."""
    return hold_of(actuator, node).action == wanted or not bring(actuator, node, step)


def await_free(actuator: Kubernetes, node: str) -> None:
    """Until nothing of ours is on a node that is released."""
    wait_for(f"{node} is free", lambda: is_brought(actuator, node, "release", None))


def others(node: dict[str, Any], domain: str = "foreshock.dev") -> dict[str, Any]:
    """Of a node's object, all that is not ours and does not change by itself: what nobody may find changed."""
    annotations = {k: v for k, v in (node["metadata"].get("annotations") or {}).items() if not k.startswith(domain)}
    conditions = {
        c["type"]: {k: v for k, v in c.items() if k != "lastHeartbeatTime"}
        for c in node["status"].get("conditions", [])
        if c["type"] != "ForeshockRisk"
    }
    taints = [taint for taint in node["spec"].get("taints", []) if not taint["key"].startswith(domain)]
    spec = {key: value for key, value in node["spec"].items() if key not in ("taints", "unschedulable")}
    labels = node["metadata"].get("labels")
    return {"annotations": annotations, "conditions": conditions, "taints": taints, "spec": spec, "labels": labels}

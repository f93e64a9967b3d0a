"""Pods, disruption budgets and DaemonSets for the tests of Kubernetes."""

from typing import Any

from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

_JOB = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}


def pod(
    name: str, node: str, labels: dict[str, str] | None = None, owned: bool = True, **metadata: Any
) -> dict[str, Any]:
    """A pod on a node; `owned` by a controller that would make it anew."""
    meta: dict[str, Any] = {"name": name, "namespace": "default", "labels": labels or {}, **metadata}
    if owned:
        meta["ownerReferences"] = [_JOB | {"name": name.rpartition("-")[0], "uid": f"uid-of-{name}"}]
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def budget(name: str, labels: dict[str, str], least: int) -> dict[str, Any]:
    """A disruption budget: so many of these pods must be left."""
    spec = {"minAvailable": least, "selector": {"matchLabels": labels}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def daemon_set(name: str, node: str) -> dict[str, Any]:
    """A DaemonSet of one node."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
        },
    }
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def create(cluster: Cluster, *objects: dict[str, Any]) -> None:
    """Objects as they are, owners that are not there included."""
    paths = {
        "Pod": "/api/v1/namespaces/{}/pods",
        "PodDisruptionBudget": "/apis/policy/v1beta1/namespaces/{}/poddisruptionbudgets",
        "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    }
    with cluster.client() as client:
        for made in objects:
            answer = client.post(paths[made["kind"]].format(made["metadata"]["namespace"]), json=made)
            assert answer.is_success, answer.text


def running(cluster: Cluster, node: str) -> set[str]:
    """The names of the pods that run on a node."""
    found = cluster.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node}")["items"]
    return {p["metadata"]["name"] for p in found if p["status"].get("phase") == "Running"}


def await_running(cluster: Cluster, node: str, count: int) -> None:
    """Wait until so many run there."""
    wait_for(f"{count} pods run on {node}", lambda: len(running(cluster, node)) == count)

"""What kubelets say to a real API server, for nodes that are not there: they are ready, their pods run and end.

A thread keeps the nodes' leases and conditions fresh, says of each pod that it runs, and lets go of deleted ones.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from threading import Event, Thread
from types import TracebackType
from typing import Any

import httpx2

CAPACITY = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "node.kubernetes.io/instance-type": "h100x8"}
_STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
_BEAT_EVERY = 20  # rounds between two heartbeats of all nodes
_PAUSE_S = 0.25
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

log = logging.getLogger(__name__)


class Kubelets:
    """The stand-in: `with Kubelets(client, ["gpu001"]):`; `rounds` counts how often it has looked."""

    def __init__(self, client: httpx2.Client, nodes: Sequence[str]) -> None:
        self.rounds = 0
        self._client = client
        self._first = nodes
        self._nodes: tuple[str, ...] = ()
        self._born = _now()
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Kubelets":
        self.add(self._first)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    def add(self, nodes: Sequence[str]) -> None:
        """More nodes join."""
        for node in nodes:
            self._client.post("/api/v1/nodes", json=node_object(node)).raise_for_status()
            self._beat(node)
        self._nodes += tuple(nodes)

    def remove(self, nodes: Sequence[str]) -> None:
        """Nodes leave for good."""
        self._nodes = tuple(node for node in self._nodes if node not in nodes)
        for node in nodes:
            self._client.delete(f"/api/v1/nodes/{node}")

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            try:
                if self.rounds % _BEAT_EVERY == 0:
                    for node in self._nodes:
                        self._beat(node)
                pods = self._client.get("/api/v1/pods", params={"fieldSelector": "spec.nodeName!="}).json()
                for pod in pods["items"]:
                    self._tend(pod)
                self.rounds += 1
            except (httpx2.HTTPError, KeyError, ValueError) as error:  # the API server is away: tests do that
                log.info("kubelets: %r", error)

    def _beat(self, node: str) -> None:
        said = {"lastHeartbeatTime": _now(), "lastTransitionTime": self._born}
        conditions = [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting ready status", **said},
            {
                "type": "MemoryPressure",
                "status": "False",
                "reason": "KubeletHasSufficientMemory",
                "message": "",
                **said,
            },
        ]
        status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": conditions}
        self._client.patch(f"/api/v1/nodes/{node}/status", json={"status": status}, headers=_STRATEGIC)
        spec = {"holderIdentity": node, "leaseDurationSeconds": 600, "renewTime": _now(micro=True)}
        found = self._client.patch(f"{_LEASES}/{node}", json={"spec": spec}, headers=_STRATEGIC)
        if found.status_code == 404:
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}}
            self._client.post(_LEASES, json={**kind, "spec": spec})

    def _tend(self, pod: Mapping[str, Any]) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            self._client.request("DELETE", path, json={"apiVersion": "v1", "kind": "DeleteOptions", **options})
        elif pod["status"].get("phase") == "Pending":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": _now()}
            status = {"phase": "Running", "startTime": _now(), "conditions": [ready]}
            self._client.patch(f"{path}/status", json={"status": status}, headers=_STRATEGIC)


def node_object(name: str) -> dict[str, Any]:
    """A node as a kubelet registers it."""
    labels = {"kubernetes.io/hostname": name, **LABELS}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _now(micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")

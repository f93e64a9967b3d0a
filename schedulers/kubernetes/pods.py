"""Pods on a node that we hold: whether work still runs, and its eviction, within every disruption budget.

Pods are never deleted: the Eviction API alone is asked, which says 429 where a budget would be broken; that pod is
asked for again at a later turn. Left alone are pods of a DaemonSet, mirror pods (the kubelet's own), pods that nobody
would make anew, those of kept namespaces, and those that bear the opt-out label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from schedulers.kubernetes.client import ApiError, Client
from schedulers.kubernetes.node import opted_out
from schedulers.kubernetes.settings import KubernetesSettings

_MIRROR = "kubernetes.io/config.mirror"
_PAGE = "500"


class Owner(msgspec.Struct, frozen=True):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    apiVersion: str = ""  # noqa: N815 - Kubernetes' own name
    controller: bool | None = None


class PodMetadata(msgspec.Struct, frozen=True):
    """Of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[Owner] | None = None  # noqa: N815
    deletionTimestamp: str | None = None  # noqa: N815


class _Spec(msgspec.Struct, frozen=True):
    nodeName: str | None = None  # noqa: N815


class _Status(msgspec.Struct, frozen=True):
    phase: str | None = None


class Pod(msgspec.Struct, frozen=True):
    """Of a pod's object, what we go by."""

    metadata: PodMetadata = msgspec.field(default_factory=PodMetadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def place(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def owner(self) -> Owner | None:
        """Its controller."""
        return next((owner for owner in self.metadata.ownerReferences or [] if owner.controller), None)

    @property
    def is_work(self) -> bool:
        """Whether it runs or is to run, and is no part of the node's own equipment."""
        equipment = _MIRROR in (self.metadata.annotations or {}) or (self.owner and self.owner.kind == "DaemonSet")
        return not equipment and self.status.phase not in ("Succeeded", "Failed")


class _ListMeta(msgspec.Struct):
    more: str = msgspec.field(name="continue", default="")


class _Pods(msgspec.Struct):
    metadata: _ListMeta
    items: list[Pod] | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one round of evictions: pods still there, and of those the ones that were not let go, and why."""

    left: int = 0
    asked: int = 0
    blocked: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """For people."""
        why = "; ".join(f"{place}: {reason}" for place, reason in list(self.blocked.items())[:3])
        return f"{self.left} pods left, {len(self.blocked)} held back" + (f" ({why})" if why else "")


def list_pods(client: Client, selector: Mapping[str, str], namespace: str | None = None) -> list[Pod]:
    """The pods that a `fieldSelector` or `labelSelector` names, of all namespaces or one.

    Raises:
        ApiError, SchedulerAwayError: they cannot be listed.
    """
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    found: list[Pod] = []
    query = {**selector, "limit": _PAGE}
    while True:
        page = client.get(path, _Pods, query)
        found += page.items or []
        if not page.metadata.more:
            return found
        query = {**selector, "limit": _PAGE, "continue": page.metadata.more}


def pods_of_node(client: Client, node: str) -> list[Pod]:
    """The pods that are bound to a node.

    Raises:
        ApiError, SchedulerAwayError: they cannot be listed.
    """
    return list_pods(client, {"fieldSelector": f"spec.nodeName={node}"})


def must_go(pod: Pod, settings: KubernetesSettings) -> bool:
    """Whether a drain waits for the end of a pod."""
    return (
        pod.is_work
        and (pod.owner is not None or settings.evict_unmanaged)
        and pod.metadata.namespace not in settings.keep_namespaces
        and not opted_out(pod.metadata.labels, settings)
    )


def evict(client: Client, pods: Sequence[Pod], policy: str) -> Round:
    """Ask for the eviction of each pod once; those that end already are only waited for.

    Args:
        policy: the API version of an eviction that the server knows: policy/v1 or policy/v1beta1.

    Raises:
        SchedulerAwayError: the server does not answer.
    """
    blocked: dict[str, str] = {}
    asked = gone = 0
    for pod in pods:
        if pod.metadata.deletionTimestamp:
            continue
        metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
        precondition = {"preconditions": {"uid": pod.metadata.uid}}  # never one of the same name that came after
        body = {"apiVersion": policy, "kind": "Eviction", "metadata": metadata, "deleteOptions": precondition}
        try:
            client.call("POST", f"{pod.path}/eviction", body)
            asked += 1
        except ApiError as error:
            if error.status in (404, 409):  # it is gone, or another stands in its place
                gone += 1
            else:
                blocked[pod.place] = str(error)
    return Round(len(pods) - gone, asked, blocked)


def eviction_version(client: Client) -> str:
    """The API version in which this server takes evictions; policy/v1 is served from Kubernetes 1.22 on.

    Raises:
        SchedulerAwayError: the server does not answer.
    """
    try:
        served = client.get("/apis/policy", _Group)
    except ApiError:
        return "policy/v1"
    versions = {version.groupVersion for version in served.versions}
    return "policy/v1" if "policy/v1" in versions or not versions else "policy/v1beta1"


class _Version(msgspec.Struct):
    groupVersion: str = ""  # noqa: N815


class _Group(msgspec.Struct):
    versions: list[_Version] = msgspec.field(default_factory=list)

"""Pods on a node that is drained: their eviction, within every disruption budget; and what a job is asked for.

Pods are never deleted: the Eviction API alone is asked, which says 429 where a budget would be broken; that pod is
asked for again at a later turn. Left alone are pods of a DaemonSet, mirror pods (the kubelet's own), pods that nobody
would make anew, those of kept namespaces, and those that bear the opt-out label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.kubernetes.client import MERGE_PATCH, ApiError, KubernetesClient
from schedulers.kubernetes.events import EventRecorder, EventSubject
from schedulers.kubernetes.node import opted_out
from schedulers.reconcile.actuator import JobOrder, OrderReport
from store.plural import many

_MIRROR = "kubernetes.io/config.mirror"
_PAGE = "500"


class PodOwner(msgspec.Struct, frozen=True):
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
    ownerReferences: list[PodOwner] | None = None  # noqa: N815
    deletionTimestamp: str | None = None  # noqa: N815


class _PodSpec(msgspec.Struct, frozen=True):
    nodeName: str | None = None  # noqa: N815


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str | None = None


class Pod(msgspec.Struct, frozen=True):
    """Of a pod's object, what we go by."""

    metadata: PodMetadata = msgspec.field(default_factory=PodMetadata)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def place(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def owner(self) -> PodOwner | None:
        """Its controller."""
        return next((owner for owner in self.metadata.ownerReferences or [] if owner.controller), None)

    @property
    def is_work(self) -> bool:
        """Whether it runs or is to run, and is no part of the node's own equipment."""
        equipment = _MIRROR in (self.metadata.annotations or {}) or (self.owner and self.owner.kind == "DaemonSet")
        return not equipment and self.status.phase not in ("Succeeded", "Failed")


class _PodListMeta(msgspec.Struct):
    more: str = msgspec.field(name="continue", default="")


class _PodList(msgspec.Struct):
    metadata: _PodListMeta
    items: list[Pod] | None = None


@dataclass(frozen=True, slots=True)
class EvictionRound:
    """What came of one round of evictions: pods still there, and of those the ones that were not let go, and why."""

    left: int = 0
    blocked: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """For people."""
        why = "; ".join(f"{place}: {reason}" for place, reason in list(self.blocked.items())[:3])
        return f"{many(self.left, 'pod')} left, {len(self.blocked)} held back" + (f" ({why})" if why else "")


def list_pods(client: KubernetesClient, selector: Mapping[str, str], namespace: str | None = None) -> list[Pod]:
    """The pods that a `fieldSelector` or `labelSelector` names, of all namespaces or one.

    Raises:
        ApiError, SchedulerAwayError: they cannot be listed.
    """
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    found: list[Pod] = []
    query = {**selector, "limit": _PAGE}
    while True:
        page = client.get(path, _PodList, query)
        found += page.items or []
        if not page.metadata.more:
            return found
        query = {**selector, "limit": _PAGE, "continue": page.metadata.more}


def pods_of_node(client: KubernetesClient, node: str) -> list[Pod]:
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


def evict(client: KubernetesClient, pods: Sequence[Pod], policy: str) -> EvictionRound:
    """Ask for the eviction of each pod once; those that end already are only waited for.

    Args:
        policy: the API version of an eviction that the server knows: policy/v1 or policy/v1beta1.

    Raises:
        SchedulerAwayError: the server does not answer.
    """
    blocked: dict[str, str] = {}
    gone = 0
    for pod in pods:
        if pod.metadata.deletionTimestamp:
            continue
        metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
        precondition = {"preconditions": {"uid": pod.metadata.uid}}  # never one of the same name that came after
        body = {"apiVersion": policy, "kind": "Eviction", "metadata": metadata, "deleteOptions": precondition}
        try:
            client.call("POST", f"{pod.path}/eviction", body)
        except ApiError as error:
            if error.status in (404, 409):  # it is gone, or another stands in its place
                gone += 1
            else:
                blocked[pod.place] = str(error)
    return EvictionRound(len(pods) - gone, blocked)


def eviction_version(client: KubernetesClient) -> str:
    """The API version in which this server takes evictions; policy/v1 is served from Kubernetes 1.22 on.

    Raises:
        SchedulerAwayError: the server does not answer.
    """
    try:
        served = client.get("/apis/policy", _ApiGroup)
    except ApiError:
        return "policy/v1"
    versions = {version.groupVersion for version in served.versions}
    return "policy/v1" if "policy/v1" in versions or not versions else "policy/v1beta1"


class _ApiVersion(msgspec.Struct):
    groupVersion: str = ""  # noqa: N815


class _ApiGroup(msgspec.Struct):
    versions: list[_ApiVersion] = msgspec.field(default_factory=list)


# What is asked of a job that runs on a culprit: checkpoint, requeue, swap.
#
# Kubernetes has no verb for these; a job's controller, operator or own sidecar has to follow. What it can follow:
#
#     an Event on the job's controller (PyTorchJob, Job, JobSet's Job ...) and on its pods on the culprit
#     with `annotate_pods`, on each pod of the job:  foreshock.dev/checkpoint: <hint>   or /requeue, /swap
#                                                    foreshock.dev/culprit: gpu-017, and /spare: gpu-021 of a swap

# The labels by which a pod names its job, the outermost first; as parsers/reports/kubernetes_jobs.py reads them.
JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)


def ask_job(
    client: KubernetesClient, notices: EventRecorder, settings: KubernetesSettings, order: JobOrder
) -> OrderReport:
    """Tell a job. Its name is `namespace/name`, or the name alone where no other namespace has one such.

    Raises:
        ApiError, SchedulerAwayError: its pods cannot be listed.
    """
    if order.action not in ("checkpoint", "requeue", "swap"):
        return OrderReport(order.job, "refused", f"{order.action} is no action on a job")
    pods = _pods_of(client, order.job)
    if not pods:
        return OrderReport(order.job, "absent", "no pod of such a job runs")
    namespaces = {pod.metadata.namespace for pod in pods}
    if len(namespaces) > 1:
        return OrderReport(order.job, "refused", f"several namespaces have such a job: {', '.join(sorted(namespaces))}")
    failed = [said for said in _tell(notices, order, pods) if said]
    if settings.annotate_pods:
        failed += _annotate(client, settings, order, pods)
    if settings.dry_run:
        return OrderReport(order.job, "refused", "dry run: the API server would take it")
    return OrderReport(order.job, "retry" if failed else "done", "; ".join(failed[:3]) or f"{many(len(pods), 'pod')}")


def _pods_of(client: KubernetesClient, job: str) -> list[Pod]:
    namespace, _, name = job.rpartition("/")
    for label in JOB_LABELS:
        found = list_pods(client, {"labelSelector": f"{label}={name}"}, namespace or None)
        running = [pod for pod in found if pod.is_work and not pod.metadata.deletionTimestamp]
        if running:
            return running
    return []


def _tell(notices: EventRecorder, order: JobOrder, pods: list[Pod]) -> list[str]:
    """Events on the controller and on the pods that run on the culprit; what went wrong."""
    spare = f", spare {order.spare}" if order.spare else ""
    message = f"{order.action} requested for {order.job}: {order.reason} (node {order.node}{spare}) id={order.hint}"
    subjects = []
    owner = pods[0].owner
    namespace = pods[0].metadata.namespace
    if owner is not None:
        subjects.append(EventSubject(owner.kind, owner.name, owner.uid, namespace, owner.apiVersion))
    there = [pod.metadata for pod in pods if pod.spec.nodeName == order.node]
    subjects += [EventSubject("Pod", pod.name, pod.uid, namespace) for pod in there]
    reason = f"Foreshock{order.action.capitalize()}"
    return [notices.tell(subject, reason, message, is_warning=True) for subject in subjects]


def _annotate(client: KubernetesClient, settings: KubernetesSettings, order: JobOrder, pods: list[Pod]) -> list[str]:
    wanted = {order.action: order.hint, "culprit": order.node}
    if order.spare:
        wanted["spare"] = order.spare
    keyed = {f"{settings.domain}/{key}": value for key, value in wanted.items()}
    failed = []
    for pod in pods:
        if all((pod.metadata.annotations or {}).get(key) == value for key, value in keyed.items()):
            continue
        try:
            client.call("PATCH", pod.path, {"metadata": {"annotations": keyed}}, MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                failed.append(f"{pod.place}: {error}")
    return failed

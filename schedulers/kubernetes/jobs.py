"""What is asked of a job that runs on a culprit: checkpoint, requeue, swap.

Kubernetes has no verb for these; a job's controller, operator or own sidecar has to follow. What it can follow:

    an Event on the job's controller (PyTorchJob, Job, JobSet's Job ...) and on its pods on the culprit
    with `annotate_pods`, on each pod of the job:  foreshock.dev/checkpoint: <hint>   or /requeue, /swap
                                                   foreshock.dev/culprit: gpu-017, and /spare: gpu-021 of a swap
"""

from typing import Protocol

from schedulers.actuator import JobOrder, Report
from schedulers.kubernetes.client import MERGE_PATCH, ApiError, Client
from schedulers.kubernetes.notices import Notices, Subject
from schedulers.kubernetes.pods import Pod, list_pods
from schedulers.kubernetes.settings import KubernetesSettings

# The labels by which a pod names its job, the outermost first; as parsers/kubernetes_jobs.py reads them.
JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)


class Means(Protocol):
    """What asking takes of what is open towards the cluster."""

    @property
    def client(self) -> Client:
        """The API server."""

    @property
    def notices(self) -> Notices:
        """Who writes Events."""


def ask_job(means: Means, settings: KubernetesSettings, order: JobOrder) -> Report:
    """Tell a job. Its name is `namespace/name`, or the name alone where no other namespace has one such.

    Raises:
        ApiError, SchedulerAwayError: its pods cannot be listed.
    """
    if order.action not in ("checkpoint", "requeue", "swap"):
        return Report(order.job, "refused", f"{order.action} is nothing that can be asked of a job")
    pods = _pods_of(means.client, order.job)
    if not pods:
        return Report(order.job, "absent", "no pod of such a job runs")
    namespaces = {pod.metadata.namespace for pod in pods}
    if len(namespaces) > 1:
        return Report(order.job, "refused", f"several namespaces have such a job: {', '.join(sorted(namespaces))}")
    failed = [said for said in _tell(means, order, pods) if said]
    if settings.annotate_pods:
        failed += _annotate(means.client, settings, order, pods)
    if settings.dry_run:
        return Report(order.job, "refused", "dry run: the API server would take it")
    return Report(order.job, "retry" if failed else "done", "; ".join(failed[:3]) or f"{len(pods)} pods")


def _pods_of(client: Client, job: str) -> list[Pod]:
    namespace, _, name = job.rpartition("/")
    for label in JOB_LABELS:
        found = list_pods(client, {"labelSelector": f"{label}={name}"}, namespace or None)
        running = [pod for pod in found if pod.is_work and not pod.metadata.deletionTimestamp]
        if running:
            return running
    return []


def _tell(means: Means, order: JobOrder, pods: list[Pod]) -> list[str]:
    """Events on the controller and on the pods that run on the culprit; what went wrong."""
    spare = f", spare {order.spare}" if order.spare else ""
    message = f"{order.action} is asked of {order.job}: {order.reason} (node {order.node}{spare}) id={order.hint}"
    subjects = []
    owner = pods[0].owner
    namespace = pods[0].metadata.namespace
    if owner is not None:
        subjects.append(Subject(owner.kind, owner.name, owner.uid, namespace, owner.apiVersion))
    there = [pod.metadata for pod in pods if pod.spec.nodeName == order.node]
    subjects += [Subject("Pod", pod.name, pod.uid, namespace) for pod in there]
    reason = f"Foreshock{order.action.capitalize()}"
    return [means.notices.tell(subject, reason, message, is_warning=True) for subject in subjects]


def _annotate(client: Client, settings: KubernetesSettings, order: JobOrder, pods: list[Pod]) -> list[str]:
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

"""What is asked of running jobs, as their controllers find it in a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster

from schedulers.kubernetes.actuator import Kubernetes
from schedulers.kubernetes.pods import JOB_LABELS
from schedulers.reconcile.actuator import JobOrder, OrderReport
from store.records.hint import HintAction

from .live_orders import agent
from .workload import await_running, create, pod

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture(scope="module")
def nodes(kubernetes_cluster: Cluster) -> Iterator[list[str]]:
    """Two nodes."""
    with kubernetes_cluster.nodes(2) as names:
        yield names


@pytest.fixture
def actuator(kubernetes_cluster: Cluster, tmp_path: Path) -> Iterator[Kubernetes]:
    """One that may annotate pods, with the rights that deploy/kubernetes/rbac-jobs.yaml adds."""
    kubernetes_cluster.kubectl("apply", "-f", str(RBAC.with_name("rbac-jobs.yaml")))
    with agent(kubernetes_cluster, tmp_path, annotate_pods=True) as acting:
        yield acting


def asked(job: str, action: HintAction, node: str, spare: str | None = None) -> JobOrder:
    """An order for a job."""
    return JobOrder(job, "h9", action, node, "foreshock: xid 79 on gpu 0", spare)


def told(cluster: Cluster, name: str) -> list[tuple[str, str, str, int]]:
    """Kind, reason, message and count of our Events about an object."""
    words = ["get", "events", "-n", "default", "--field-selector", f"involvedObject.name={name}", "-o", "json"]
    found = json.loads(cluster.kubectl(*words))["items"]
    ours = [event for event in found if event["source"].get("component") == "foreshock"]
    return [(e["involvedObject"]["kind"], e["reason"], e["message"], e["count"]) for e in ours]


def test_a_swap_names_the_culprit_and_the_spare(
    kubernetes_cluster: Cluster, actuator: Kubernetes, nodes: list[str]
) -> None:
    """On every pod of the job; Events on the job and on its pod there. Asking again counts, and writes nothing anew."""
    culprit, other = nodes
    labels = {"training.kubeflow.org/job-name": "llm"}
    create(kubernetes_cluster, pod("llm-0", culprit, labels), pod("llm-1", other, labels), pod("not-llm", other))
    await_running(kubernetes_cluster, other, 2)
    order = asked("default/llm", "swap", culprit, "gpu-spare")
    assert actuator.ask_jobs([order]) == [OrderReport("default/llm", "done", "2 pods")]
    assert actuator.ask_jobs([order]) == [OrderReport("default/llm", "done", "2 pods")]
    message = f"swap requested for default/llm: foreshock: xid 79 on gpu 0 (node {culprit}, spare gpu-spare) id=h9"
    assert told(kubernetes_cluster, "llm-0") == [("Pod", "ForeshockSwap", message, 2)]
    assert told(kubernetes_cluster, "llm-1") == []
    assert told(kubernetes_cluster, "llm") == [("Job", "ForeshockSwap", message, 2)]
    for name in ("llm-0", "llm-1"):
        annotations = kubernetes_cluster.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]["annotations"]
        assert annotations == {
            "foreshock.dev/swap": "h9",
            "foreshock.dev/culprit": culprit,
            "foreshock.dev/spare": "gpu-spare",
        }
    found = kubernetes_cluster.get("/api/v1/namespaces/default/pods/not-llm")["metadata"]
    assert "annotations" not in found


@pytest.mark.parametrize("label", JOB_LABELS)
def test_a_job_is_found_by_any_of_its_labels(
    kubernetes_cluster: Cluster, actuator: Kubernetes, nodes: list[str], label: str
) -> None:
    """Of JobSet, Kubeflow, Volcano and plain Jobs; by its name alone, too."""
    name = f"by-{JOB_LABELS.index(label)}"
    create(kubernetes_cluster, pod(f"{name}-0", nodes[0], {label: name}))
    for job in (f"default/{name}", name):
        assert actuator.ask_jobs([asked(job, "checkpoint", nodes[0])]) == [OrderReport(job, "done", "1 pod")]


def test_without_leave_pods_are_left_as_they_are(kubernetes_cluster: Cluster, tmp_path: Path, nodes: list[str]) -> None:
    """The default: Events alone."""
    create(kubernetes_cluster, pod("quiet-0", nodes[0], {"job-name": "quiet"}))
    with agent(kubernetes_cluster, tmp_path) as actuator:
        (came,) = actuator.ask_jobs([asked("quiet", "requeue", nodes[0])])
    assert came.result == "done"
    assert [event[1] for event in told(kubernetes_cluster, "quiet-0")] == ["ForeshockRequeue"]
    assert "annotations" not in kubernetes_cluster.get("/api/v1/namespaces/default/pods/quiet-0")["metadata"]


def test_a_job_that_does_not_run_is_absent_and_a_wrong_wish_refused(actuator: Kubernetes) -> None:
    """Neither is tried again for ever."""
    reports = actuator.ask_jobs([asked("default/nothing", "swap", "gpu-1"), asked("default/x", "cordon", "gpu-1")])
    assert [report.result for report in reports] == ["absent", "refused"]


def test_a_name_that_two_namespaces_have_is_refused(
    kubernetes_cluster: Cluster, actuator: Kubernetes, nodes: list[str]
) -> None:
    """Nobody else's job is told to stop; with its namespace it is the one that was meant."""
    for namespace in ("default", "kube-public"):
        create(kubernetes_cluster, pod("twin-0", nodes[0], {"job-name": "twin"}, namespace=namespace))
    (came,) = actuator.ask_jobs([asked("twin", "requeue", nodes[0])])
    assert (came.result, came.detail) == ("refused", "several namespaces have such a job: default, kube-public")
    (came,) = actuator.ask_jobs([asked("kube-public/twin", "requeue", nodes[0])])
    assert came == OrderReport("kube-public/twin", "done", "1 pod")
    assert "annotations" not in kubernetes_cluster.get("/api/v1/namespaces/default/pods/twin-0")["metadata"]

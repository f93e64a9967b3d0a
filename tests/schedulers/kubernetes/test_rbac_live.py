"""The rights of deploy/kubernetes/ are enough, and the least: without any single verb something is missed."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

from schedulers.kubernetes.actuator import Kubernetes
from schedulers.kubernetes.client import ApiError
from schedulers.reconcile.actuator import JobOrder, SchedulerAwayError

from .live_orders import acting, bring
from .workload import await_running, create, pod

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/foreshock/leases/foreshock"
FILES = [RBAC, RBAC.with_name("rbac-evict.yaml"), RBAC.with_name("rbac-jobs.yaml")]


def roles() -> Iterator[dict[str, Any]]:
    """Every role that the files have."""
    for file in FILES:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if document["kind"] in ("Role", "ClusterRole"):
                yield document


def verbs() -> list[tuple[str, int, str]]:
    """Every verb, by its role's kind and name and the number of its rule."""
    return [
        (f"{role['kind']} {role['metadata']['name']}", number, verb)
        for role in roles()
        for number, rule in enumerate(role["rules"])
        for verb in rule["verbs"]
    ]


def grant(cluster: Cluster, account: str, without: tuple[str, int, str] | None) -> None:
    """A service account of the name with all rights but one."""
    namespaced = {"namespace": "foreshock"}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, **namespaced}}
    ]
    for role in roles():
        mine = copy.deepcopy(role)
        name = f"{account}-{role['metadata']['name']}"
        mine["metadata"]["name"] = name
        if without is not None and f"{role['kind']} {role['metadata']['name']}" == without[0]:
            mine["rules"][without[1]]["verbs"].remove(without[2])
            mine["rules"] = [rule for rule in mine["rules"] if rule["verbs"]]
        where = namespaced if role["kind"] == "Role" else {}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": f"{role['kind']}Binding",
            "metadata": {"name": name, **where},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, **namespaced}],
        }
        made += [mine, binding]
    cluster.apply(*made)


def missed(cluster: Cluster, actuator: Kubernetes, node: str) -> list[str]:
    """What does not come about of all that an actuator does."""
    came = bring(actuator, node, "watch")  # of a node that it has not seen yet
    wrong = [f"first: {came.detail}"] if came.result != "done" else []
    try:
        actuator.observe()
    except SchedulerAwayError as error:
        return [*wrong, f"observe: {error}"]
    asked = JobOrder("default/run", "h2", "checkpoint", node, "foreshock: xid 79")
    (told,) = actuator.ask_jobs([asked])
    (told_again,) = actuator.ask_jobs([asked])
    wrong += [f"job: {came.detail}" for came in (told, told_again) if came.result != "done"]
    for action in ("release", "watch", "avoid"):
        came = bring(actuator, node, action)  # type: ignore[arg-type]
        wrong += [f"{action}: {came.result} {came.detail}"] if (came.result, came.detail) != ("done", "") else []
    came = bring(actuator, node, "drain")
    wrong += [f"drain: {came.detail}"] if "held back (" in came.detail or "403" in came.detail else []
    wrong += _missed_of_the_watch(cluster, actuator, node)
    came = bring(actuator, node, "release")
    wrong += [f"release: {came.detail}"] if came.result != "done" else []
    return wrong + _missed_of_the_lease(actuator)


def _missed_of_the_watch(cluster: Cluster, actuator: Kubernetes, node: str) -> list[str]:
    """A list at each look would show changes, too: asked is what the watch keeps."""
    link = actuator._connect()
    seen = link.mirror.get(node)
    cluster.kubectl("label", "node", node, "followed=yes", "--overwrite")
    try:
        wait_for("the watch tells", lambda: link.mirror.get(node) != seen, timeout_s=5.0)
    except TimeoutError:
        return ["the watch tells nothing"]
    return []


def _missed_of_the_lease(actuator: Kubernetes) -> list[str]:
    lease = actuator._connect().lease
    try:
        lease.release()
        held = lease.acquire()
    except ApiError as error:
        return [f"lease: {error}"]
    return [held] if held else []


@pytest.fixture
def node(kubernetes_cluster: Cluster) -> Iterator[str]:
    """A fresh node, with a pod of a run on it; nobody has the lease."""
    with kubernetes_cluster.nodes(1) as (name,):
        create(kubernetes_cluster, pod(f"run-{name}", name, {"training.kubeflow.org/job-name": "run"}))
        await_running(kubernetes_cluster, name, 1)
        yield name
        kubernetes_cluster.delete(f"/api/v1/namespaces/default/pods/run-{name}")
        kubernetes_cluster.delete(LEASE)


def test_the_rights_are_enough(kubernetes_cluster: Cluster, tmp_path: Path, node: str) -> None:
    """For all that an actuator does, evictions and pods' annotations included."""
    grant(kubernetes_cluster, "all", None)
    with acting(kubernetes_cluster.agent(tmp_path, "all"), evict=True, annotate_pods=True) as actuator:
        assert missed(kubernetes_cluster, actuator, node) == []


@pytest.mark.parametrize(("role", "rule", "verb"), verbs(), ids=lambda part: str(part).replace(" ", "-"))
def test_no_right_is_needless(
    kubernetes_cluster: Cluster, tmp_path: Path, node: str, role: str, rule: int, verb: str
) -> None:
    """Without it something is missed, and what is missed is told."""
    account = f"less-{node}"
    grant(kubernetes_cluster, account, (role, rule, verb))
    kubernetes_cluster.delete(LEASE)
    config = kubernetes_cluster.agent(tmp_path, account)
    with acting(config, evict=True, annotate_pods=True, identity=account) as actuator:
        assert missed(kubernetes_cluster, actuator, node) != []

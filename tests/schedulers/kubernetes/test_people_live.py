"""People and other tools at the same nodes at the same time: what is theirs stays theirs."""

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from real.kubernetes import KubectlError
from real.kubernetes import Kubernetes as Cluster
from real.patience import patience
from real.programs import wait_for

from schedulers.kubernetes.actuator import Kubernetes
from store.records.hint import HintAction

from .live_orders import agent, await_free, bring, hold_of, order, others

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]
ROUNDS = 12


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


@pytest.mark.parametrize("action", ["watch", "avoid", "cordon", "drain", "release"])
def test_a_person_s_cordon_is_left_alone(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str, action: HintAction
) -> None:
    """Whatever is ordered, also right after it: the watch need not have told of it yet."""
    actuator.observe()
    kubernetes_cluster.kubectl("cordon", node)
    came = bring(actuator, node, action)
    assert came.result == ("done" if action == "release" else "foreign")
    spec = kubernetes_cluster.node(node)["spec"]
    assert spec["unschedulable"] is True
    assert not [taint for taint in spec.get("taints", []) if "foreshock" in taint["key"]]
    wait_for("it is told of", lambda: hold_of(actuator, node).foreign is not None)


@pytest.mark.parametrize(("words", "result"), [(["cordon"], "foreign"), (["label", "a=b"], "done")])
@pytest.mark.parametrize("action", ["avoid", "cordon"])
def test_what_the_watch_has_not_told_yet_the_patch_finds(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str, action: HintAction, words: list[str], result: str
) -> None:
    """It does not apply to the changed node, which is read and judged again, within the same turn."""
    actuator.observe()
    mirror = actuator._connect().mirror
    wait_for("it is known", lambda: mirror.get(node) is not None)
    old = mirror.get(node)
    assert old is not None
    verb, *more = words
    kubernetes_cluster.kubectl(verb, *(["node", node, *more] if more else [node]))
    wait_for("the watch tells", lambda: mirror.get(node) != old)
    mirror._nodes[node] = old
    assert bring(actuator, node, action).result == result
    spec = kubernetes_cluster.node(node)["spec"]
    assert any(taint["key"] == "foreshock.dev/risk" for taint in spec.get("taints", [])) == (result == "done")


def test_a_person_s_uncordon_is_seen_and_what_is_left_of_ours_goes(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str
) -> None:
    """It is less than was ordered, so the reconciler takes it for undone."""
    bring(actuator, node, "cordon")
    kubernetes_cluster.kubectl("uncordon", node)
    wait_for("it is seen", lambda: hold_of(actuator, node).action != "cordon")
    hold = hold_of(actuator, node)
    assert (hold.action, hold.hint) == ("avoid", "h1")
    bring(actuator, node, "release")
    await_free(actuator, node)
    assert not kubernetes_cluster.node(node)["spec"].get("taints")


def test_a_peer_that_comes_after_us_keeps_the_node(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str
) -> None:
    """We let go of ours, and leave it unschedulable."""
    bring(actuator, node, "cordon")
    kubernetes_cluster.kubectl("annotate", "node", node, "k8saas.nvidia.com/cordon-by=nvsentinel")
    came = bring(actuator, node, "release")
    assert (came.result, came.detail) == ("done", "left unschedulable for k8saas.nvidia.com/cordon-by=nvsentinel")
    found = kubernetes_cluster.node(node)
    assert found["spec"]["unschedulable"] is True
    assert found["metadata"]["annotations"]["k8saas.nvidia.com/cordon-by"] == "nvsentinel"
    assert not [t for t in found["spec"].get("taints", []) if t["key"].startswith("foreshock.dev")]
    hold = hold_of(actuator, node)
    assert (hold.action, hold.foreign) == (None, "k8saas.nvidia.com/cordon-by=nvsentinel")


def test_nvsentinel_s_node_is_its_own(kubernetes_cluster: Cluster, actuator: Kubernetes, node: str) -> None:
    """Marked by labels and annotations, as its fault-quarantine writes them: neither cordoned twice nor uncordoned."""
    by = "k8saas.nvidia.com/cordon-by"
    kubernetes_cluster.kubectl("label", "node", node, f"{by}=NVSentinel", "k8saas.nvidia.com/cordon-reason=xid-79")
    marks = ['quarantineHealthEvent=[{"checkName":"SysLogsXIDError"}]', "quarantineHealthEventIsCordoned=True"]
    kubernetes_cluster.kubectl("annotate", "node", node, *marks)
    kubernetes_cluster.kubectl("cordon", node)
    wait_for("it is seen", lambda: hold_of(actuator, node).foreign is not None)
    came = bring(actuator, node, "cordon")
    assert (came.result, came.detail) == ("foreign", "NVSentinel (quarantineHealthEvent, xid-79)")
    assert bring(actuator, node, "release").result == "done"
    found = kubernetes_cluster.node(node)
    assert found["spec"]["unschedulable"] is True
    assert not [key for key in found["metadata"]["annotations"] if key.startswith("foreshock.dev")]


def test_taints_of_others_survive_any_race(kubernetes_cluster: Cluster, actuator: Kubernetes) -> None:
    """People change a taint in a loop while we put on and take off ours: no change of theirs is lost.

    Ours is the soft one: of cordoned nodes the node controller itself writes the list of taints, unguarded, and undoes
    what came in between.
    """
    with kubernetes_cluster.nodes(3) as names:
        stop, failures, changes = Event(), list[str](), list[int]()

        def people() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                changes.append(number)
                words = ["taint", "node", *names, f"team=t{number}:NoSchedule", "--overwrite"]
                try:
                    kubernetes_cluster.kubectl(*words)
                except KubectlError as error:
                    if "the object has been modified" not in str(error):
                        failures.append(str(error))
                    continue
                for name in names:
                    taints = {t["key"]: t.get("value") for t in kubernetes_cluster.node(name)["spec"]["taints"]}
                    if taints.get("team") != f"t{number}":
                        failures.append(f"{name}: {taints} after t{number}")

        thread = Thread(target=people)
        thread.start()
        results: set[str] = set()
        turn = 0
        while len(changes) < ROUNDS:
            turn += 1
            action: HintAction = "release" if turn % 2 else "avoid"
            for report in actuator.carry_out([order(name, action) for name in names]):
                results.add(report.result)
        stop.set()
        thread.join()
        assert failures == []
        assert results <= {"done", "retry"}
        actuator.carry_out([order(name, "release") for name in names])
        for name in names:
            spec = kubernetes_cluster.node(name)["spec"]
            assert [t["key"] for t in spec["taints"] if "kubernetes.io" not in t["key"]] == ["team"]
            assert not spec.get("unschedulable")


def test_a_cordon_by_a_person_in_the_same_moment_ends_as_one_or_the_other_s(
    kubernetes_cluster: Cluster, actuator: Kubernetes
) -> None:
    """Never as both: either their cordon stands without a mark of ours, or ours was there first."""
    with kubernetes_cluster.nodes(ROUNDS) as names:
        actuator.observe()
        for name in names:
            person = subprocess.Popen(
                ["kubectl", "--kubeconfig", str(kubernetes_cluster.admin), "cordon", name],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            came = bring(actuator, name, "cordon")
            assert person.wait(patience(60)) == 0
            found = kubernetes_cluster.node(name)
            assert found["spec"]["unschedulable"] is True
            is_marked = "foreshock.dev/cordon-by" in found["metadata"].get("annotations", {})
            assert is_marked == (came.result == "done")


def test_whatever_others_have_put_on_a_node_is_the_same_afterwards(
    kubernetes_cluster: Cluster, actuator: Kubernetes
) -> None:
    """Random marks of others, random orders of ours, then a release: each node is compared whole."""
    dice = random.Random(7)
    with kubernetes_cluster.nodes(12) as names:
        for name in names:
            kubernetes_cluster.kubectl("patch", "node", name, "-p", _marks(dice))
        wait_for("marks are told of", lambda: _is_settled(kubernetes_cluster, names))
        before = {name: kubernetes_cluster.node(name) for name in names}
        for _ in range(5):
            actions: list[HintAction] = ["watch", "avoid", "cordon", "drain", "release"]
            actuator.carry_out([order(name, dice.choice(actions)) for name in names])
            for name in names:
                assert _stable(kubernetes_cluster.node(name)) == _stable(before[name])
        actuator.carry_out([order(name, "release") for name in names])
        for name in names:
            after = kubernetes_cluster.node(name)
            assert _stable(after) == _stable(before[name])
            assert after["spec"].get("unschedulable") == before[name]["spec"].get("unschedulable")
            assert not [k for k in after["metadata"].get("annotations", {}) if k.startswith("foreshock.dev")]


def _marks(dice: random.Random) -> str:
    spec: dict[str, Any] = {"unschedulable": True} if dice.random() < 0.4 else {}
    spec["taints"] = [
        {"key": key, "value": str(dice.randint(0, 9)), "effect": dice.choice(["NoSchedule", "PreferNoSchedule"])}
        for key in dice.sample(["nvidia.com/gpu", "team", "x.dev/risk", "karpenter.sh/disrupted"], dice.randint(0, 3))
    ]
    marks = ["k8saas.nvidia.com/cordon-by", "note", "skyhook.nvidia.com/cordon_x"]
    annotations = dict.fromkeys(dice.sample(marks, dice.randint(0, 2)), "somebody")
    return json.dumps({"metadata": {"annotations": annotations, "labels": {"a": "b"}}, "spec": spec})


def _is_settled(cluster: Cluster, names: list[str]) -> bool:
    """Whether the controller has put its own taint on each cordoned node."""
    specs = [cluster.node(name)["spec"] for name in names]
    return all(
        bool(spec.get("unschedulable")) == any("unschedulable" in t["key"] for t in spec.get("taints", []))
        for spec in specs
    )


def _stable(node: dict[str, Any]) -> dict[str, Any]:
    """All but the controller's taint of cordoned nodes, which comes and goes with our cordons."""
    found = others(node)
    found["taints"] = [taint for taint in found["taints"] if taint["key"] != "node.kubernetes.io/unschedulable"]
    return found


def test_the_actuator_of_another_domain_is_another(
    kubernetes_cluster: Cluster, actuator: Kubernetes, node: str, tmp_path: Path
) -> None:
    """Two installations with domains of their own see each other's cordon as foreign."""
    with agent(kubernetes_cluster, tmp_path, domain="other.example.com") as other:
        assert bring(other, node, "cordon").result == "done"
        wait_for("it is told of", lambda: hold_of(actuator, node).foreign == "other.example.com/cordon-by=foreshock")
        assert bring(actuator, node, "cordon").result == "foreign"
        assert bring(actuator, node, "release").result == "done"
        assert hold_of(other, node).action == "cordon"

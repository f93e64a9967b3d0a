"""What a node's object says of who holds it."""

from typing import Any

import msgspec
import pytest

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.kubernetes.node import KubernetesNode, read_hold

SETTINGS = KubernetesSettings("sim")
EVICTING = KubernetesSettings("sim", evict=True)
OURS = {"foreshock.dev/hint": "h1", "foreshock.dev/cordon-by": "foreshock", "foreshock.dev/action": "cordon"}
SICK, SHUT = {"quarantineHealthEvent": '[{"nodeName": "gpu-1"}]'}, {"quarantineHealthEventIsCordoned": "True"}
BY, WHY = "k8saas.nvidia.com/cordon-by", "k8saas.nvidia.com/cordon-reason"
RISK = {"key": "foreshock.dev/risk", "value": "cordon", "effect": "NoSchedule"}


def node(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> KubernetesNode:
    """A node's object, ready."""
    conditions = [{"type": "Ready", "status": "True"}, *spec.pop("conditions", [])]
    metadata = {"name": "gpu-1", "resourceVersion": "7", "annotations": annotations, "labels": labels}
    document = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
    return msgspec.convert(document, KubernetesNode)


def watched(status: str = "True", message: str = "foreshock: p=0.1 id=w1") -> dict[str, str]:
    """Our condition."""
    return {"type": "ForeshockRisk", "status": status, "message": message}


def test_a_node_that_nobody_marked_is_nobody_s() -> None:
    """And its state is in kubectl's words."""
    hold = read_hold(node(), SETTINGS)
    assert (hold.state, hold.action, hold.hint, hold.foreign) == ("Ready", None, None, None)
    assert read_hold(msgspec.convert({"metadata": {"name": "x"}}, KubernetesNode), SETTINGS).state == "NotReady"


def test_a_label_names_the_nvlink_domain() -> None:
    """As NVIDIA's device plugin writes it; most nodes have none."""
    labels = {"nvidia.com/gpu.clique": "50000000-0000-0000-0000-000000000005.1"}
    assert read_hold(node(labels=labels), SETTINGS).nvlink_domain == "50000000-0000-0000-0000-000000000005.1"
    assert read_hold(node(), SETTINGS).nvlink_domain is None


@pytest.mark.parametrize(
    ("found", "action", "hint"),
    [
        (node(conditions=[watched()]), "watch", "w1"),
        (node(conditions=[watched("False")]), None, None),
        (node(conditions=[watched(message="who wrote this?")]), "watch", None),
        (node({"foreshock.dev/hint": "h1"}, taints=[RISK]), "avoid", "h1"),
        (node(OURS, taints=[RISK], unschedulable=True), "cordon", "h1"),
        (node(OURS | {"foreshock.dev/action": "drain"}, taints=[RISK], unschedulable=True), "drain", "h1"),
        (node(OURS, taints=[RISK], unschedulable=True, conditions=[watched()]), "cordon", "h1"),
        (node(taints=[RISK]), "avoid", None),
    ],
)
def test_the_gravest_of_our_marks_counts(found: KubernetesNode, action: str | None, hint: str | None) -> None:
    """With its hint; a mark without one is an orphan."""
    hold = read_hold(found, SETTINGS)
    assert (hold.action, hold.hint, hold.foreign) == (action, hint, None)


def test_what_is_left_of_an_undone_cordon_is_less_than_a_cordon() -> None:
    """So that it is seen that a person took it off, and what is left is taken off, too."""
    assert read_hold(node(OURS, taints=[RISK]), SETTINGS).action == "avoid"
    assert read_hold(node(OURS), SETTINGS).action == "watch"


def test_a_drain_that_evicts_is_one_when_nothing_is_left_to_go() -> None:
    """Until then it is found to be a cordon, and ordered again."""
    marks = OURS | {"foreshock.dev/action": "drain"}
    assert read_hold(node(marks, unschedulable=True), EVICTING).action == "cordon"
    done = marks | {"foreshock.dev/drained": "2026-11-22T12:00:00Z"}
    assert read_hold(node(done, unschedulable=True), EVICTING).action == "drain"


@pytest.mark.parametrize(
    ("found", "who"),
    [
        (node(unschedulable=True), "cordoned (unschedulable), without a name"),
        (
            node({"k8saas.nvidia.com/cordon-by": "nvsentinel"}, unschedulable=True),
            "k8saas.nvidia.com/cordon-by=nvsentinel",
        ),
        (node({"nodewright.nvidia.com/cordon_upgrade": "true"}), "nodewright.nvidia.com/cordon_upgrade=true"),
        (node({"nodeset.slinky.slurm.net/node-cordon-reason": "x"}), "nodeset.slinky.slurm.net/node-cordon-reason=x"),
        (
            node(taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]),
            "taint karpenter.sh/disrupted:NoSchedule",
        ),
        (node({"other.dev/cordon-by": "foreshock"}, unschedulable=True), "other.dev/cordon-by=foreshock"),
        (node(labels={"k8saas.nvidia.com/cordon-by": "NVSentinel"}, unschedulable=True), f"{BY}=NVSentinel"),
        (
            node(
                SICK | {"quarantineHealthEventAppliedTaints": '[{"Key":"gpu-error","Value":"","Effect":"NoSchedule"}]'},
                taints=[{"key": "gpu-error", "effect": "NoSchedule"}],
            ),
            "NVSentinel (quarantineHealthEvent)",
        ),
        (
            node(SICK | SHUT, {BY: "NVSentinel", WHY: "gpu-xid-errors"}, unschedulable=True),
            "NVSentinel (quarantineHealthEvent, gpu-xid-errors)",
        ),
        (
            node(taints=[{"key": "nvsentinel.dgxc.nvidia.com/nvcre-cert-failed", "effect": "NoSchedule"}]),
            "taint nvsentinel.dgxc.nvidia.com/nvcre-cert-failed:NoSchedule",
        ),
    ],
)
def test_others_are_told_of_by_their_marks(found: KubernetesNode, who: str) -> None:
    """Nothing of ours is on it."""
    hold = read_hold(found, SETTINGS)
    assert (hold.action, hold.foreign) == (None, who)


@pytest.mark.parametrize(
    "found",
    [
        node(labels={BY: "NVSentinel", "k8saas.nvidia.com/uncordon-by": "NVSentinel"}),
        node(SHUT | {"quarantineHealthEvent": "[]", "quarantinedNodeUncordonedManually": "True"}),
        # The taint is gone, its annotation stands: the node takes work. Another one of its key is none of it.
        node(
            SICK
            | {"quarantineHealthEventAppliedTaints": '[{"Key":"nvidia.com/gpu","Value":"x","Effect":"NoSchedule"}]'},
            taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        ),
        node(SICK | {"quarantineHealthEventAppliedTaints": '[{"Key":"gpu-error","Value":"","Effect":"NoSchedule"}]'}),
        node(SICK | {"quarantineHealthEventAppliedLabels": "[{}]"}, {"nvidia.com/gpu-fault": "active"}),
        node(SICK | SHUT),
        node({"nodeset.slinky.slurm.net/node-cordon-reason": "foreshock: Xid 79 id=h1"}),
    ],
)
def test_what_is_over_or_ours_is_nobody_s(found: KubernetesNode) -> None:
    """A label that outlives NVSentinel's cordon, no fault, a rule that only labels, a person's uncordon, our reason."""
    assert read_hold(found, SETTINGS).foreign is None


def test_others_may_lie_beside_us() -> None:
    """Both are told."""
    hold = read_hold(node(OURS | {"k8saas.nvidia.com/cordon-by": "nvsentinel"}, unschedulable=True), SETTINGS)
    assert (hold.action, hold.hint, hold.foreign) == ("cordon", "h1", "k8saas.nvidia.com/cordon-by=nvsentinel")


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "team", "value": "vision", "effect": "NoExecute"},
    ],
)
def test_a_taint_that_says_whose_the_node_is_holds_nothing_back(taint: dict[str, str]) -> None:
    """Most GPU nodes bear one; a node that is not ready is what we are here for."""
    assert read_hold(node(taints=[taint]), SETTINGS).foreign is None


def test_the_opt_out_label() -> None:
    """Says true, and nothing else."""
    assert read_hold(node(labels={"foreshock.dev/opt-out": "true"}), SETTINGS).is_opted_out
    assert not read_hold(node(labels={"foreshock.dev/opt-out": "false"}), SETTINGS).is_opted_out
    other = KubernetesSettings("sim", domain="ops.example.com")
    assert read_hold(node(labels={"ops.example.com/opt-out": "True"}), other).is_opted_out


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"domain": "Foreshock"}, "DNS name"),
        ({"domain": "node.kubernetes.io"}, "take one of yours"),
        ({"at_once": 0}, "1 to 256"),
        ({"requests_per_s": 0.0}, "requests_per_s"),
        ({"timeout_s": 40.0}, "less than lease_s"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], remedy: str) -> None:
    """With the remedy."""
    with pytest.raises(ValueError, match=remedy):
        KubernetesSettings("sim", **settings)

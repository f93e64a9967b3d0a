"""From a node's object and an order to its patch: what is not ours stays as it is, whatever is on the node."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.kubernetes.node import CONDITION, SLINKY_REASON, KubernetesNode, read_hold
from schedulers.kubernetes.patch import NodePatch, PatchRefusal, change_of, drained
from store.records.hint import HintAction

from .json_patch import DoesNotHoldError, apply
from .live_orders import NOW, UNTIL, order, others

SETTINGS = KubernetesSettings("sim")
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def document(**spec: Any) -> dict[str, Any]:
    """A node's object as the API server has it."""
    annotations = spec.pop("annotations", None)
    metadata: dict[str, Any] = {"name": "gpu-1", "resourceVersion": "7"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [READY]}}


def change(found: dict[str, Any], action: HintAction, hint: str = "h1") -> NodePatch | PatchRefusal:
    """What an order comes to."""
    return change_of(msgspec.convert(found, KubernetesNode), order("gpu-1", action, hint), SETTINGS, NOW)


def brought(found: dict[str, Any], action: HintAction, hint: str = "h1") -> dict[str, Any]:
    """The object after an order, as the API server would have it."""
    asked = change(found, action, hint)
    assert isinstance(asked, NodePatch)
    after = apply(found, asked.patch)
    if asked.condition is not None:
        (condition,) = asked.condition["status"]["conditions"]
        kept = [c for c in after["status"]["conditions"] if c["type"] != condition["type"]]
        after["status"]["conditions"] = [*kept, condition]
    if not after["spec"].get("taints", True):
        del after["spec"]["taints"]  # the API server leaves empty lists and maps out
    if not after["metadata"].get("annotations", True):
        del after["metadata"]["annotations"]
    return after


def action_of(found: dict[str, Any]) -> str | None:
    """What is read back."""
    return read_hold(msgspec.convert(found, KubernetesNode), SETTINGS).action


def test_a_cordon_is_unschedulable_with_a_taint_and_says_whose_it_is() -> None:
    """All in one patch: there is no half of it."""
    after = brought(document(taints=[GPU]), "cordon")
    assert after["spec"] == {
        "unschedulable": True,
        "taints": [GPU, {"key": "foreshock.dev/risk", "value": "cordon", "effect": "NoSchedule"}],
    }
    assert after["metadata"]["annotations"] == {
        "foreshock.dev/action": "cordon",
        "foreshock.dev/hint": "h1",
        "foreshock.dev/reason": "foreshock: xid 79 on gpu 0",
        "foreshock.dev/timestamp": "2026-11-22T12:00:00.000000Z",
        "foreshock.dev/valid-until": "2026-11-23T12:00:00.000000Z",
        "foreshock.dev/cordon-by": "foreshock",
    }


def test_avoid_is_a_soft_taint_and_no_cordon() -> None:
    """PreferNoSchedule: work comes only where there is no other place."""
    after = brought(document(), "avoid")
    assert after["spec"] == {"taints": [{"key": "foreshock.dev/risk", "value": "avoid", "effect": "PreferNoSchedule"}]}
    assert "foreshock.dev/cordon-by" not in after["metadata"]["annotations"]


def test_watch_is_a_condition_alone() -> None:
    """True means risk, as with the node problem detector; its reason is one word."""
    asked = change(document(), "watch")
    assert isinstance(asked, NodePatch)
    assert asked.patch == []
    assert asked.condition == {
        "status": {
            "conditions": [
                {
                    "type": CONDITION,
                    "status": "True",
                    "reason": "ForeshockWatches",
                    "message": "foreshock: xid 79 on gpu 0 until=2026-11-23T12:00:00.000000Z id=h1",
                    "lastHeartbeatTime": "2026-11-22T12:00:00Z",
                    "lastTransitionTime": "2026-11-22T12:00:00Z",
                }
            ]
        }
    }


def test_a_condition_keeps_the_moment_since_when_it_is_true() -> None:
    """A renewal moves the heartbeat alone."""
    found = brought(document(), "watch")
    found["status"]["conditions"][1]["lastTransitionTime"] = "2026-11-20T00:00:00Z"
    renewed = change_of(
        msgspec.convert(found, KubernetesNode), order("gpu-1", "watch", reason="foreshock: p=0.2"), SETTINGS, UNTIL
    )
    assert isinstance(renewed, NodePatch)
    assert renewed.condition is not None
    (condition,) = renewed.condition["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2026-11-20T00:00:00Z"
    assert condition["lastHeartbeatTime"] == "2026-11-23T12:00:00Z"


def test_a_changed_node_makes_the_patch_fail() -> None:
    """Every patch is for one version of the node."""
    asked = change(document(), "cordon")
    assert isinstance(asked, NodePatch)
    later = document()
    later["metadata"]["resourceVersion"] = "8"
    with pytest.raises(DoesNotHoldError):
        apply(later, asked.patch)


@pytest.mark.parametrize("action", ["watch", "avoid", "cordon", "drain"])
def test_asking_again_changes_nothing(action: HintAction) -> None:
    """Neither the node nor a timestamp on it."""
    again = change(brought(document(taints=[GPU]), action), action)
    assert isinstance(again, NodePatch)
    assert again.is_none


@pytest.mark.parametrize(
    "found",
    [
        document(unschedulable=True),
        document(annotations={"k8saas.nvidia.com/cordon-by": "nvsentinel"}),
        document(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
    ],
)
@pytest.mark.parametrize("action", ["watch", "avoid", "cordon", "drain"])
def test_what_another_holds_is_left_to_them(found: dict[str, Any], action: HintAction) -> None:
    """Whatever is asked."""
    came = change(found, action)
    assert isinstance(came, PatchRefusal)
    assert came.result == "foreign"


def test_a_node_that_has_opted_out_is_refused_but_released() -> None:
    """A label that comes later must not keep our marks there."""
    found = brought(document(), "cordon")
    found["metadata"]["labels"] = {"foreshock.dev/opt-out": "true"}
    assert change(found, "drain") == PatchRefusal("refused", "label foreshock.dev/opt-out=true")
    assert action_of(brought(found, "release")) is None


def test_a_release_is_of_its_own_hint_alone() -> None:
    """What another hint holds stays."""
    found = brought(document(), "cordon", "h2")
    came = change(found, "release", "h1")
    assert came == NodePatch([], None, "held for hint h2")


def test_a_taint_of_ours_that_was_written_back_is_released_without_its_annotations() -> None:
    """No other has its key."""
    ours = {"key": "foreshock.dev/risk", "value": "avoid", "effect": "PreferNoSchedule"}
    assert brought(document(taints=[GPU, ours]), "release")["spec"] == {"taints": [GPU]}
    assert change(document(taints=[GPU]), "release") == NodePatch([], None, "")


def test_a_release_leaves_the_cordon_to_who_else_has_marked_it() -> None:
    """Our taint and annotations go; the node stays unschedulable for them."""
    found = brought(document(), "cordon")
    found["metadata"]["annotations"]["k8saas.nvidia.com/cordon-by"] = "nvsentinel"
    after = brought(found, "release")
    assert after["spec"] == {"unschedulable": True}
    assert after["metadata"]["annotations"] == {"k8saas.nvidia.com/cordon-by": "nvsentinel"}


def test_a_cordon_that_nvsentinel_found_is_taken_off_once_it_lets_go() -> None:
    """It never uncordons such a node: were it left to NVSentinel, it would stay cordoned for ever."""
    found = brought(document(), "cordon")
    found["metadata"]["annotations"] |= {
        "quarantineHealthEvent": '[{"checkName": "SysLogsXIDError"}]',
        "quarantineHealthEventIsCordoned": "True",
        "quarantineHealthEventCordonPreExisting": "True",
    }
    came = change(found, "release")
    assert isinstance(came, PatchRefusal)
    assert (came.result, came.detail.partition(" came ")[0]) == ("retry", "NVSentinel (quarantineHealthEvent)")
    assert came.detail.endswith("remove the node's annotations that begin with quarantineHealthEvent")
    for key in ("", "IsCordoned", "CordonPreExisting"):
        del found["metadata"]["annotations"][f"quarantineHealthEvent{key}"]
    assert "unschedulable" not in brought(found, "release")["spec"]


def test_slurm_operator_is_left_the_reason_of_its_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cordon, as long as it lasts; without the setting nothing is left."""
    assert SLINKY_REASON not in brought(document(), "cordon")["metadata"]["annotations"]
    monkeypatch.setattr(f"{__name__}.SETTINGS", KubernetesSettings("sim", slinky=True))
    held = brought(document(), "cordon")
    said = held["metadata"]["annotations"][SLINKY_REASON]
    assert said.startswith("foreshock: ")
    assert said.endswith(" id=h1")
    assert SLINKY_REASON not in brought(document(), "avoid")["metadata"]["annotations"]
    assert SLINKY_REASON not in brought(held, "avoid")["metadata"]["annotations"]
    assert "annotations" not in brought(held, "release")["metadata"]


def test_a_watch_of_another_hint_outlives_a_release() -> None:
    """And the other way round: the condition goes with its own hint."""
    found = brought(brought(document(), "watch", "w1"), "cordon", "h1")
    found = brought(found, "release", "h1")
    assert action_of(found) == "watch"
    found = brought(found, "release", "w1")
    assert action_of(found) is None
    assert found["status"]["conditions"][1]["status"] == "False"


def test_duplicates_of_our_taint_become_one() -> None:
    """Whoever made them; others keep their order."""
    own = [
        {"key": "foreshock.dev/risk", "value": v, "effect": e} for v, e in (("avoid", "NoExecute"), ("x", "NoSchedule"))
    ]
    after = brought(document(taints=[own[0], GPU, own[1]]), "avoid")
    assert after["spec"]["taints"] == [
        GPU,
        {"key": "foreshock.dev/risk", "value": "avoid", "effect": "PreferNoSchedule"},
    ]


def test_a_drain_says_when_it_is_done_and_forgets_it_when_it_is_another_s() -> None:
    """The mark belongs to one hint."""
    found = brought(document(), "drain")
    found = apply(found, drained(msgspec.convert(found, KubernetesNode), SETTINGS, NOW))
    assert "foreshock.dev/drained" in brought(found, "drain")["metadata"]["annotations"]
    assert "foreshock.dev/drained" not in brought(found, "drain", "h2")["metadata"]["annotations"]
    assert "foreshock.dev/drained" not in brought(found, "cordon")["metadata"]["annotations"]


@pytest.mark.parametrize("action", ["requeue", "swap", "checkpoint"])
def test_what_is_asked_of_jobs_is_nothing_for_a_node(action: HintAction) -> None:
    """Refused, not done wrongly."""
    assert isinstance(change(document(), action), PatchRefusal)


KEYS = st.sampled_from(["nvidia.com/gpu", "team", "node.kubernetes.io/not-ready", "a~b/c", "x.dev/risk"])
TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": KEYS, "value": st.sampled_from(["", "a"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"])}
    ),
    max_size=4,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
ANNOTATIONS = st.none() | st.dictionaries(
    st.sampled_from(["x/y", "note", "a~1b/c~0", "foreshock.dev"]), st.text(max_size=5)
)
ACTIONS: st.SearchStrategy[list[HintAction]] = st.lists(
    st.sampled_from(["watch", "avoid", "cordon", "drain", "release"]), min_size=1, max_size=6
)


@given(taints=TAINTS, annotations=ANNOTATIONS, actions=ACTIONS)
def test_whatever_is_ordered_the_rest_of_the_node_stays(
    taints: list[dict[str, str]], annotations: dict[str, str] | None, actions: list[HintAction]
) -> None:
    """Each order is read back; after a release the node is as it was before."""
    before = document(**({"taints": taints} if taints else {}), annotations=annotations)
    now = copy.deepcopy(before)
    for action in actions:
        now = brought(now, action)
        assert others(now, "foreshock.dev/") == others(before, "foreshock.dev/")
        assert action_of(now) == (None if action == "release" else action)
    now = brought(now, "release")
    assert now["spec"] == before["spec"]
    assert (now["metadata"].get("annotations") or {}) == (annotations or {})

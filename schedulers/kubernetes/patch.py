"""From a node's object and an order to the JSON-Patch that brings it there. Pure.

    change = change_of(node, order, settings, now)
    -> Change(patch=[{"op": "test", "path": "/metadata/resourceVersion", "value": "4711"}, ...], condition=None)

`spec.taints` is one atomic list to the API server, so elements of ours are added and removed by their place, under a
`test` of the object's version: who has changed the node since makes the patch fail, and it is made anew from what is
there then. Nothing that bears no mark of ours is changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.kubernetes.node import (
    CONDITION,
    KEYS,
    OWNER,
    SLINKY_REASON,
    KubernetesNode,
    NodeMarks,
    is_left_to_us,
    opted_out,
    read_marks,
    risk_taint,
)
from schedulers.reconcile.actuator import Order
from store.records.event import format_time
from store.visible_text import visible

Patch = list[dict[str, Any]]
_EFFECTS: Mapping[str, str] = {"avoid": "PreferNoSchedule", "cordon": "NoSchedule", "drain": "NoSchedule"}
_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class NodePatch:
    """What is to be written: the node's patch, then the condition's; either may be empty."""

    patch: Patch
    condition: dict[str, Any] | None
    detail: str = ""

    @property
    def is_none(self) -> bool:
        """Whether the node is there already."""
        return not self.patch and self.condition is None


@dataclass(frozen=True, slots=True)
class PatchRefusal:
    """Why a node is left as it is."""

    result: Literal["foreign", "refused", "retry"]
    detail: str


def change_of(
    node: KubernetesNode, order: Order, settings: KubernetesSettings, now: datetime
) -> NodePatch | PatchRefusal:
    """What brings a node to what is ordered, from what it is now."""
    marks = read_marks(node, settings)
    if order.action == "release":
        if marks.is_cordon_ours and marks.hint == order.hint and is_left_to_us(node):
            return PatchRefusal(
                "retry",
                f"{marks.foreign} came after our cordon and leaves it to us: taken off after it. Where it is no longer "
                "installed, remove the node's annotations that begin with quarantineHealthEvent",
            )
        return _release(node, order, settings, marks, now)
    if marks.foreign is not None:
        return PatchRefusal("foreign", marks.foreign)
    if opted_out(node.metadata.labels, settings):
        return PatchRefusal("refused", f"label {settings.domain}/opt-out=true")
    if order.action == "watch":
        lowered = _guarded(node, _without(node, settings, marks)) if _is_held(node, settings, marks) else []
        return NodePatch(lowered, _condition(node, order, now, risky=True))
    if order.action not in _EFFECTS:
        return PatchRefusal("refused", f"{order.action} is nothing that a node can be brought to")
    return NodePatch(_guarded(node, _hold(node, order, settings, marks, now)), None)


def drained(node: KubernetesNode, settings: KubernetesSettings, now: datetime) -> Patch:
    """Says on a node that we drain that no pod is left which had to go."""
    return _guarded(node, list(_annotate(node, {_key(settings, "drained"): format_time(now)})))


def _guarded(node: KubernetesNode, patch: Patch) -> Patch:
    """The patch, for this very version of the node."""
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resourceVersion}
    return [version, *patch] if patch else []


def _hold(node: KubernetesNode, order: Order, settings: KubernetesSettings, marks: NodeMarks, now: datetime) -> Patch:
    """Taint, cordon and annotations of `avoid`, `cordon`, `drain`."""
    cordons = order.action != "avoid"
    wanted = {
        "action": order.action,
        "hint": order.hint,
        "reason": visible(order.reason)[:_MOST_REASON],
        "valid-until": format_time(order.valid_until),
    }
    if cordons:
        wanted["cordon-by"] = OWNER
    keyed = {_key(settings, name): value for name, value in wanted.items()}
    if cordons and settings.slinky:
        keyed[SLINKY_REASON] = f"{wanted['reason']} id={order.hint}"
    is_same = all(node.annotations.get(key) == value for key, value in keyed.items())
    patch: Patch = []
    if not is_same:
        patch += _annotate(node, {**keyed, _key(settings, "timestamp"): format_time(now)})
    stale = [name for name in ("cordon-by", "drained") if name not in wanted]
    if order.action == "drain" and node.annotations.get(_key(settings, "hint")) == order.hint:
        stale.remove("drained")
    patch += _drop_annotations(node, settings, stale)
    if not cordons:
        patch += _drop_slinky(node)
    patch += _taint(node, settings, order.action)
    if cordons and not node.spec.unschedulable:
        patch.append({"op": "add", "path": "/spec/unschedulable", "value": True})
    if not cordons and marks.is_cordon_ours and node.spec.unschedulable:
        patch.append({"op": "remove", "path": "/spec/unschedulable"})
    return patch


def _release(
    node: KubernetesNode, order: Order, settings: KubernetesSettings, marks: NodeMarks, now: datetime
) -> NodePatch:
    """Takes off what we hold for this hint; a node that others hold, too, stays unschedulable for them."""
    condition = _condition(node, order, now, risky=False) if marks.watch_hint == order.hint else None
    if node.annotations.get(_key(settings, "hint")) != order.hint:
        if not marks.hint:  # our taint alone may be there: the node's controller wrote it back with what it had read
            return NodePatch(_guarded(node, list(_taint(node, settings, None))), condition, "")
        return NodePatch([], condition, f"held for hint {marks.hint}" if marks.hint != order.hint else "")
    patch = _without(node, settings, marks)
    detail = f"left unschedulable for {marks.foreign}" if marks.foreign and node.spec.unschedulable else ""
    return NodePatch(_guarded(node, patch), condition, detail)


def _is_held(node: KubernetesNode, settings: KubernetesSettings, marks: NodeMarks) -> bool:
    return (
        marks.is_cordon_ours
        or any(t.key == risk_taint(settings) for t in node.taints)
        or bool(node.annotations.get(_key(settings, "hint")))
    )


def _without(node: KubernetesNode, settings: KubernetesSettings, marks: NodeMarks) -> Patch:
    """Without our taint, our cordon and our annotations."""
    patch = [*_drop_annotations(node, settings, KEYS), *_drop_slinky(node), *_taint(node, settings, None)]
    if marks.is_cordon_ours and node.spec.unschedulable and marks.foreign is None:
        patch.append({"op": "remove", "path": "/spec/unschedulable"})
    return patch


def _taint(node: KubernetesNode, settings: KubernetesSettings, action: str | None) -> Iterator[dict[str, Any]]:
    """Our one taint as an action wants it, or none; others keep theirs, and their order."""
    key = risk_taint(settings)
    wanted = None if action is None else {"key": key, "value": action, "effect": _EFFECTS[action]}
    places = [place for place, taint in enumerate(node.taints) if taint.key == key]
    kept = None
    for place in places:
        taint = node.taints[place]
        if wanted == {"key": taint.key, "value": taint.value, "effect": taint.effect}:
            kept = place
    for place in reversed(places):  # from the end: places before stay what they are
        if place != kept:
            yield {"op": "test", "path": f"/spec/taints/{place}/key", "value": key}
            yield {"op": "remove", "path": f"/spec/taints/{place}"}
    if wanted is not None and kept is None:
        if node.spec.taints:
            yield {"op": "add", "path": "/spec/taints/-", "value": wanted}
        else:
            yield {"op": "add", "path": "/spec/taints", "value": [wanted]}


def _annotate(node: KubernetesNode, values: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    if node.metadata.annotations is None:
        yield {"op": "add", "path": "/metadata/annotations", "value": {}}
    for key, value in values.items():
        yield {"op": "add", "path": f"/metadata/annotations/{_pointer(key)}", "value": value}


def _drop_annotations(node: KubernetesNode, settings: KubernetesSettings, names: list[str] | tuple[str, ...]) -> Patch:
    keys = [_key(settings, name) for name in names]
    return [
        {"op": "remove", "path": f"/metadata/annotations/{_pointer(key)}"} for key in keys if key in node.annotations
    ]


def _drop_slinky(node: KubernetesNode) -> Patch:
    """The reason that we left for slurm-operator; a person's stays."""
    if not node.annotations.get(SLINKY_REASON, "").startswith(f"{OWNER}:"):
        return []
    return [{"op": "remove", "path": f"/metadata/annotations/{_pointer(SLINKY_REASON)}"}]


def _condition(node: KubernetesNode, order: Order, now: datetime, risky: bool) -> dict[str, Any] | None:
    """The patch of the status, which is merged by the conditions' types; None where it says so already."""
    was = node.condition(CONDITION)
    message = f"{visible(order.reason)[:_MOST_REASON]} until={format_time(order.valid_until)} id={order.hint}"
    status, reason = ("True", "ForeshockWatches") if risky else ("False", "ForeshockReleased")
    if was is not None and (was.status, was.message) == (status, message):
        return None
    stamp = _seconds(now)
    since = was.lastTransitionTime if was is not None and was.status == status and was.lastTransitionTime else stamp
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message if risky else f"no risk is known: {OWNER} has let go of the node",
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": since,
    }
    return {"status": {"conditions": [condition]}}


def _key(settings: KubernetesSettings, name: str) -> str:
    return f"{settings.domain}/{name}"


def _pointer(key: str) -> str:
    """A key of ours, which has no tilde, as a step of a JSON pointer (RFC 6901)."""
    return key.replace("/", "~1")


def _seconds(moment: datetime) -> str:
    """A moment as metav1.Time is written: whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

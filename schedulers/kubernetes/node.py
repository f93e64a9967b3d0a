"""What a node's object says: who keeps work off it, what of that is ours, and for which hint.

Our marks, under the operator's domain:

    metadata.annotations   foreshock.dev/action: cordon            what was asked; hint, reason, timestamp, valid-until
                           foreshock.dev/cordon-by: foreshock      of a cordon and a drain: unschedulable is ours
                           foreshock.dev/drained: 2026-11-22T...   of a drain: no pod was left that had to go
    spec.taints            foreshock.dev/risk=avoid:PreferNoSchedule, or =cordon:NoSchedule
    status.conditions      ForeshockRisk, of a watch; its message ends with the hint's id

Unschedulable without our mark is somebody else's; so is a peer's annotation or taint, which may lie beside ours.
NVSentinel marks by labels (`k8saas.nvidia.com/cordon-by: NVSentinel`; the beginning is a setting of its own) and keeps
its state in annotations without a domain (fault-quarantine/pkg/common/common.go of NVIDIA/NVSentinel):

    quarantineHealthEvent: [{...}]                     its faults; a rule of it may only label the node, so besides:
    quarantineHealthEventIsCordoned: "True"            it keeps work off by a cordon
    quarantineHealthEventAppliedTaints: [{...}]        or by taints
    quarantineHealthEventCordonPreExisting: "True"     it found the node cordoned, and will not uncordon it
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.reconcile.actuator import Hold
from store.records.hint import HintAction

CONDITION = "ForeshockRisk"
OWNER = "foreshock"
# Annotations of ours, behind the domain.
KEYS = ("action", "hint", "reason", "timestamp", "valid-until", "cordon-by", "drained")
# The reason that slurm-operator copies into Slurm, behind `slurm-operator: `.
SLINKY_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
_QUARANTINE = "quarantineHealthEvent"
_CORDONED, _TAINTED, _CORDON_FOUND = (
    f"{_QUARANTINE}{word}" for word in ("IsCordoned", "AppliedTaints", "CordonPreExisting")
)
_EMPTY = frozenset({"", "null", "[]", "{}"})
_KEEPING_OFF = frozenset({"NoSchedule", "NoExecute"})
_HINT = re.compile(r"\bid=(\S+)$")


class Taint(msgspec.Struct, frozen=True):
    """A taint."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeCondition(msgspec.Struct, frozen=True):
    """A condition of the status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: str | None = None  # noqa: N815 - Kubernetes' own name


class ObjectMetadata(msgspec.Struct, frozen=True):
    """What every object has."""

    name: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeSpec(msgspec.Struct, frozen=True):
    """Of a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeConditions(msgspec.Struct, frozen=True):
    """Of a node."""

    conditions: list[NodeCondition] | None = None


class KubernetesNode(msgspec.Struct, frozen=True):
    """Of a node's object, what we go by; the rest is not decoded."""

    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeConditions = msgspec.field(default_factory=NodeConditions)

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def version(self) -> int:
        """How new the object is; versions grow with each change in the cluster."""
        text = self.metadata.resourceVersion
        return int(text) if text.isdecimal() else 0

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return self.metadata.annotations or {}

    @property
    def taints(self) -> list[Taint]:
        """Its taints, in their order."""
        return self.spec.taints or []

    def condition(self, kind: str) -> NodeCondition | None:
        """Its condition of a type."""
        return next((c for c in self.status.conditions or [] if c.type == kind), None)


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """How a node is marked, by us and by others."""

    action: HintAction | None  # the gravest thing that still stands
    hint: str | None
    watch_hint: str | None  # of the condition, which may be another's than that of the annotations
    is_cordon_ours: bool
    foreign: str | None


def read_marks(node: KubernetesNode, settings: KubernetesSettings) -> NodeMarks:
    """What is ours on a node and what is others'."""
    own = {key: node.annotations.get(f"{settings.domain}/{key}") for key in KEYS}
    taint = risk_taint(settings)
    is_tainted = any(t.key == taint for t in node.taints)
    is_cordon_ours = own["cordon-by"] == OWNER
    watch = watch_hint(node)
    action: HintAction | None = None
    if is_cordon_ours and node.spec.unschedulable:
        # A drain is one only when it is done: until then what is found is a cordon, and the drain is ordered again.
        is_drain = own["action"] == "drain" and (own["drained"] or not settings.evict)
        action = "drain" if is_drain else "cordon"
    elif is_tainted:
        action = "avoid"
    elif watch is not None or own["hint"]:  # the latter: a person took the rest off, and our annotations are left
        action = "watch"
    peers = list(_peers(node, settings, is_cordon_ours))
    return NodeMarks(action, own["hint"] or watch, watch, is_cordon_ours, ", ".join(peers) or None)


def risk_taint(settings: KubernetesSettings) -> str:
    """The key of our taint."""
    return f"{settings.domain}/risk"


def watch_hint(node: KubernetesNode) -> str | None:
    """The hint that our condition names while it is True."""
    condition = node.condition(CONDITION)
    if condition is None or condition.status != "True":
        return None
    found = _HINT.search(condition.message)
    return found[1] if found else ""


def _peers(node: KubernetesNode, settings: KubernetesSettings, is_cordon_ours: bool) -> Iterator[str]:
    """Others who hold the node, in words."""
    labels = node.metadata.labels or {}
    named = is_quarantined(node)
    if named:
        why = next((f", {value[:80]}" for key, value in sorted(labels.items()) if key.endswith("/cordon-reason")), "")
        yield f"NVSentinel ({_QUARANTINE}{why})"
    elif node.spec.unschedulable and not is_cordon_ours:  # a label may outlive the cordon that it was of
        for key, value in sorted(labels.items()):
            if key.endswith("/cordon-by") and not key.startswith(f"{settings.domain}/"):
                named = True
                yield f"{key}={value[:80]}"
    for key, value in sorted(node.annotations.items()):
        domain, _, name = key.rpartition("/")
        if key == SLINKY_REASON and value.startswith(f"{OWNER}:"):
            continue
        if domain != settings.domain and any(_names(mark, key, name) for mark in settings.peer_marks):
            named = True
            yield f"{key}={value[:80]}"
    for taint in node.taints:
        if any(taint.key.startswith(beginning) for beginning in settings.peer_taints):
            named = True
            yield f"taint {taint.key}:{taint.effect}"
    if node.spec.unschedulable and not is_cordon_ours and not named:
        yield "cordoned (unschedulable), without a name"


def is_quarantined(node: KubernetesNode) -> bool:
    """Whether NVSentinel keeps work off the node."""
    said = node.annotations
    is_held = bool(node.spec.unschedulable) and said.get(_CORDONED) == "True"
    is_tainted = any(taint in _taints_named(said.get(_TAINTED, "")) for taint in node.taints)
    return said.get(_QUARANTINE, "").strip() not in _EMPTY and (is_held or is_tainted)


def _taints_named(text: str) -> list[Taint]:
    """Those of an annotation of NVSentinel that keep work off; the annotation may outlive the taints."""
    try:
        found = msgspec.json.decode(text, type=list[dict[str, str]])
    except msgspec.DecodeError:
        return []
    said = [{name.lower(): value for name, value in one.items()} for one in found]
    taints = [Taint(one.get("key", ""), one.get("effect", ""), one.get("value", "")) for one in said]
    return [one for one in taints if one.effect in _KEEPING_OFF]


def is_left_to_us(node: KubernetesNode) -> bool:
    """Whether NVSentinel holds the node and found it cordoned: it leaves the cordon to who was there before."""
    return is_quarantined(node) and node.annotations.get(_CORDON_FOUND) == "True"


def _names(mark: str, key: str, name: str) -> bool:
    """Whether a peer's mark is this annotation: the whole key, or the beginning of what is behind the domain."""
    return key == mark if "/" in mark else name.startswith(mark)


# Cluster and clique of the node's NVLink fabric, as NVIDIA's device plugin and feature discovery write it.
CLIQUE = "nvidia.com/gpu.clique"


def opted_out(labels: Mapping[str, str] | None, settings: KubernetesSettings) -> bool:
    """Whether a label says that we must not touch it."""
    return (labels or {}).get(f"{settings.domain}/opt-out", "").lower() == "true"


def read_hold(node: KubernetesNode, settings: KubernetesSettings) -> Hold:
    """A node as the reconciler wants to be told of it."""
    marks = read_marks(node, settings)
    ready = node.condition("Ready")
    words = ["Ready" if ready and ready.status == "True" else "NotReady"]
    if node.spec.unschedulable:
        words.append("SchedulingDisabled")
    return Hold(
        node.name,
        ",".join(words),
        marks.action,
        (marks.hint or None) if marks.action else None,
        marks.foreign,
        opted_out(node.metadata.labels, settings),
        is_up=words[0] == "Ready",
        nvlink_domain=(node.metadata.labels or {}).get(CLIQUE),
    )

"""A verdict: the cause that explains a set of incidents, with its probability and the evidence for and against it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from store.records.event import Action, Cause, Device

# What a cause is of: a part, what parts share, or what is no fault of the machine.
CauseClass: TypeAlias = Literal[
    "gpu",
    "nvlink",
    "nvswitch",
    "nic",
    "cable",
    "optic",
    "port",
    "switch",
    "node",
    "rack",
    "power",
    "cooling",
    "storage",
    "driver",
    "firmware",
    "application",
    "planned",
    "job",
    "unknown",
]
VerdictState: TypeAlias = Literal["open", "revised", "explained", "closed"]

CAUSE_CLASSES: tuple[CauseClass, ...] = get_args(CauseClass)
# Those whose places are versions, which many nodes have without any place in common.
RELEASE_CLASSES: tuple[CauseClass, ...] = ("driver", "firmware")


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """One reason for or against a cause.

    `weight` is its logarithm of odds (natural), positive also where it speaks against; `events` are ids, few.
    """

    text: str
    events: tuple[str, ...] = ()
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cause. `name` is what an operator calls it, `names` are its aliases.

    `nodes` hang below it or felt it; `node` is its own, where it is of one node. `since` is its first sign's time by a
    common clock. `probability` means what it says (docs/diagnosis.md shows how often); the one of class `unknown` is
    that no cause known here explains what is seen. `explained_by` is the id of the verdict that took this one in.
    `victims`: those of `nodes` that suffer only, and of which nothing is asked. `last` is the time of its last sign,
    `newest` that of the last one that was new.
    """

    cause_class: CauseClass
    name: str
    probability: float
    cause: Cause
    action: Action
    since: datetime
    reason: str
    device: Device = field(default_factory=Device)
    node: str | None = None
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    gpu_hours_at_stake: float = 0.0
    incidents: tuple[str, ...] = ()
    evidence_for: tuple[VerdictEvidence, ...] = ()
    evidence_against: tuple[VerdictEvidence, ...] = ()
    last: datetime | None = None
    newest: datetime | None = None
    id: str = ""
    state: VerdictState = "open"
    revision: int = 0
    explained_by: str | None = None

    def incident_ids(self) -> set[str]:
        """The incidents that it names, and its events: an incident bears its first event's id, and may come later."""
        return {*self.incidents, *(event for evidence in self.evidence_for for event in evidence.events)}

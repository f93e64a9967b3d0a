"""A hint: what we ask of a scheduler, with evidence, owner, validity and state."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from store.records.evidence import Evidence, evidence_of

# The state of a hint at one scheduler. asked: ordered, and not read back yet. confirmed: read back. foreign: another
# keeps work off the node. undone: a person removed our hold. absent: the scheduler has no such node. refused: the
# scheduler cannot do it. released: our hold is gone.
HoldState: TypeAlias = Literal["asked", "confirmed", "foreign", "undone", "absent", "refused", "released"]
# Of a node: watch to release. Of a job that runs on a culprit: save now, start again without it, take a spare for it.
HintAction: TypeAlias = Literal["watch", "avoid", "cordon", "drain", "release", "checkpoint", "requeue", "swap"]
# shadow: written down, never sent. proposed: waits for a person. approved: to be sent. sent: a scheduler took it.
# confirmed: read back from the scheduler. The rest are ends: withdrawn by a person, expired at valid_until, released
# because the node is well again.
HintState: TypeAlias = Literal[
    "shadow", "proposed", "approved", "sent", "confirmed", "withdrawn", "expired", "released"
]

HINT_ACTIONS: tuple[HintAction, ...] = get_args(HintAction)
OPEN_STATES: tuple[HintState, ...] = ("shadow", "proposed", "approved", "sent", "confirmed")
LIVE_STATES: tuple[HintState, ...] = ("approved", "sent", "confirmed")  # what a scheduler is to be brought to
JOB_ACTIONS: tuple[HintAction, ...] = ("checkpoint", "requeue", "swap")


@dataclass(frozen=True, slots=True)
class Hint:
    """One request. `evidence` holds the score, the incident and what else speaks for it."""

    id: str
    node: str
    action: HintAction
    state: HintState
    reason: str
    owner: str
    created: datetime
    valid_until: datetime
    evidence: Evidence = field(default_factory=Evidence)
    job: str | None = None  # the job that it concerns; None: the node alone
    policy: str | None = None  # the version of the policy that asked for it last

    @property
    def is_control(self) -> bool:
        """Whether it is only written down, in every mode, to see what comes of a node that is left alone."""
        return self.evidence.control

    def to_row(self) -> dict[str, Any]:
        """The fields by name, as the table and the API have them: the evidence is a JSON object."""
        return {name: getattr(self, name) for name in Hint.__slots__} | {"evidence": self.evidence.to_json()}


def hint_of(row: Any) -> Hint:
    """The hint of a row of `hints`."""
    found = {name: row[name] for name in Hint.__slots__}
    return Hint(**(found | {"evidence": evidence_of(found["evidence"])}))

"""Inputs of a decision: the nodes with their risk and faults, and the hints; nothing else decides.

    corroborated(signs, 3600.0) -> (kernel: nvlink_error, dcgm: row_remap_failure) or None

Two independent detectors that both saw a node fail count as a confirmed fault. The score is no detector: it is computed
from the same events. Nor is a source that repeats others (`store/records/event_sources.py`): alerts, gpud and
NVSentinel read the same log lines and counters, and an alert may come from our own score. A program's own report does
not count: it is often the victim of another node. One sign from two sources (the kernel's Xid 63, and DCGM's field with
the same number) is one sign. A detector that was nearly always wrong at this site weighs less than one: see
`schedulers/checks/check_weights.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from schedulers.policy.settings import Stop
from store.hints.check_log import check_name
from store.hints.hint_log import ACTOR_POLICY
from store.hints.stops import Trip
from store.models.scores import LinkScore
from store.nodes.node_states import FaultSign
from store.records.event import CAUSES, Cause
from store.records.hint import OPEN_STATES, Hint, HintAction
from store.records.incident import Incident
from store.records.verdict import Verdict

Pair = tuple[FaultSign, FaultSign]

# How a source looks at the machine. One that is not named corroborates nothing.
FAMILY: Mapping[str, str] = {
    **dict.fromkeys(("kernel", "ascend", "fabricmanager"), "driver"),
    **dict.fromkeys(
        ("opensm", "ufm", "switch", "infiniband", "iblinkinfo", "perfquery", "ibqueryerrors", "ibnetdiscover"), "fabric"
    ),
    **dict.fromkeys(("dcgm", "nvml", "npu", "amd", "cambricon", "node_exporter"), "telemetry"),
    # It tries the machine itself, whatever else it reads.
    "nhc": "check",
}
_OF_THE_NODE: frozenset[Cause] = frozenset({"hardware", "fabric"})
assert set(CAUSES) >= _OF_THE_NODE  # noqa: S101  # a word that is misspelt would corroborate nothing for ever


# Each detector weighs at most 1, so that none confirms a hold by itself; one whose own record is bad weighs less.
ENOUGH_WEIGHT = 1.5


def corroborated(
    signs: Sequence[FaultSign], within_s: float, weights: Mapping[tuple[str, str], float] = MappingProxyType({})
) -> Pair | None:
    """The newest two signs of one node that come from different families, no further apart than `within_s` seconds.

    Args:
        weights: of checks (source and name, `store/hints/check_log.py`) by their record; what has none weighs 1. Two
            that weigh less than `ENOUGH_WEIGHT` together are no pair.
    """
    counted = (sign for sign in signs if _counts(sign))
    newest_first = sorted(counted, key=lambda sign: (sign.end, sign.incident), reverse=True)
    for place, later in enumerate(newest_first):
        for earlier in newest_first[place + 1 :]:
            if (
                _independent(later, earlier)
                and (later.start - earlier.end).total_seconds() <= within_s
                and sum(min(1.0, weights.get(check_of(sign), 1.0)) for sign in (later, earlier)) >= ENOUGH_WEIGHT
            ):
                return earlier, later
    return None


def check_of(sign: FaultSign) -> tuple[str, str]:
    """The check that a sign is of: its source, and what it names."""
    return sign.source, check_name(sign.kind, sign.code)


def _counts(sign: FaultSign) -> bool:
    return sign.source in FAMILY and sign.cause in _OF_THE_NODE and sign.severity in ("error", "fatal")


def _independent(one: FaultSign, other: FaultSign) -> bool:
    return FAMILY[one.source] != FAMILY[other.source] and (one.kind, one.code) != (other.kind, other.code)


HOLDING: tuple[HintAction, ...] = ("cordon", "drain")  # what keeps work off a node, and so costs budget
AVOIDING: tuple[HintAction, ...] = ("avoid",)  # what does so softly, and in some schedulers by taking the node


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The job that runs on a node, and how many nodes and GPUs it has."""

    job: str
    run: str
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as of now. `score` is that of 24 h, or None; `fault` a confirmed one that is not repaired yet.

    `scored`: of when the score is. `control`: its score alone makes no request to the scheduler. `idle`: no job runs
    on it; None: not known.
    `witnesses`: two independent detectors that both saw it fail. `silent`: its sidecar does not report any more.
    `let_go`: a person has let go of what spoke against it: it is not held for that, nor is it a spare.
    `out`: somebody tells of an outage that lasts. `is_shown_out`: a scheduler itself shows it down or kept from work by
    others, too: only then is nothing asked of it anew. `watched`: an NVLink of it stands out, which is no fault yet.
    `victim_of`: the verdict that explains what the node shows, so that it is no fault of its own; `verdict`: the one by
    which a part of this node is what others suffer from.
    """

    node: str
    rack: str | None = None
    leaf: str | None = None
    driver: str | None = None
    score: float | None = None
    reasons: tuple[str, ...] = ()
    fault: Incident | None = None
    out: bool = False
    control: bool = False
    nvlink_domain: str | None = None
    idle: bool | None = None
    gpus: int | None = None
    job: JobFacts | None = None
    witnesses: Pair | None = None
    silent: bool = False
    let_go: bool = False
    is_shown_out: bool = False
    watched: Incident | None = None
    victim_of: Verdict | None = None
    verdict: Verdict | None = None
    links: tuple[LinkScore, ...] = ()
    scored: datetime | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether more than a score speaks against it: what a hold takes."""
        return self.fault is not None or self.witnesses is not None or self.verdict is not None


@dataclass(frozen=True, slots=True)
class Reporting:
    """How many nodes in service have a sidecar, and how many of those were heard of lately."""

    expected: int
    heard: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a decision depends on.

    `hints`: those open, still valid, or made within the hour. `still_held`: nodes that a scheduler may still hold for
    us though their hint has ended. `trips`: the breaker's newest of each group. `stop`: what the kill switch stops.
    `largest_job_gpus`: of the jobs that run; None: none is known. `reporting`: None where no node has a sidecar.
    `nodes`: those that count: of the inventory, or where nobody gives one (`is_claimed`) all that speak. `costless`:
    ids of hints that hold nothing, for no scheduler knows their node, nor the inventory. `avoid_takes`: some scheduler
    takes a node out of use for an `avoid`; `still_avoided`: nodes that such a one may still avoid for us. `of_prior`:
    the scores are of a model that has learned nothing here yet.
    """

    now: datetime
    nodes: Sequence[NodeFacts]
    hints: Sequence[Hint] = field(default_factory=tuple)
    still_held: frozenset[str] = frozenset()
    trips: Sequence[Trip] = ()
    stop: Stop = "none"
    largest_job_gpus: int | None = None
    reporting: Reporting | None = None
    is_claimed: bool = False
    costless: frozenset[str] = frozenset()
    avoid_takes: bool = False
    still_avoided: frozenset[str] = frozenset()
    of_prior: bool = False

    def open_by_node(self) -> Mapping[str, Hint]:
        """Each node's open hint."""
        return {hint.node: hint for hint in self.hints if hint.state in OPEN_STATES and hint.job is None}

    def refused_by_node(self) -> Mapping[str, Hint]:
        """Each node's newest hint that a person ended and that would still be valid."""
        past = (hint for hint in self.hints if hint.job is None and hint.valid_until > self.now)
        return {hint.node: hint for hint in past if _by_person(hint)}


def acted(hint: Hint) -> datetime:
    """When a hint came to be what it is: made, or escalated."""
    return hint.evidence.acted or hint.created


def holds(hint: Hint) -> bool:
    """Whether an open hint keeps work off its node, or would."""
    return hint.state in OPEN_STATES and hint.action in HOLDING and not hint.is_control


def is_of_link(hint: Hint) -> bool:
    """Whether a link of the node called for a hint."""
    return hint.evidence.link is not None


def avoids(hint: Hint) -> bool:
    """Whether an open hint asks that a node be avoided, in earnest."""
    return hint.state in OPEN_STATES and hint.action in AVOIDING and not hint.is_control


def acted_within(
    hints: Sequence[Hint], now: datetime, window_s: float, actions: Collection[HintAction] = HOLDING
) -> list[Hint]:
    """The cordons and drains (or other actions) of a window, whatever has become of them."""
    since = now - timedelta(seconds=window_s)
    return [hint for hint in hints if hint.action in actions and not hint.is_control and acted(hint) >= since]


def closed_at(hint: Hint) -> datetime | None:
    """When a hint was ended; None for one that was not."""
    return None if hint.evidence.closed is None else hint.evidence.closed.time


def _by_person(hint: Hint) -> bool:
    closed = hint.evidence.closed
    return closed is not None and closed.by != ACTOR_POLICY and hint.state in ("withdrawn", "released")

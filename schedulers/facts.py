"""What the policy looks at: the nodes, their risk and faults, and the hints that stand; nothing else decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from schedulers.settings import Stop
from schedulers.witness import Pair
from store.event import parse_time
from store.hint import OPEN_STATES, Hint
from store.hint_log import ACTOR_POLICY
from store.incident import Incident
from store.trips import Trip

HOLDING = ("cordon", "drain")  # what keeps work off a node, and so costs budget


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The job that runs on a node, and how many nodes and GPUs it has."""

    job: str
    run: str
    nodes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as of now. `score` is that of 24 h or None; `fault` a confirmed one that is not repaired yet.

    `control`: nothing is asked of the scheduler for its score alone. `idle`: no job runs on it; None: not known.
    `witnesses`: two independent detectors that both saw it fail. `silent`: its sidecar does not report any more.
    `let_go`: a person has let go of what spoke against it: that is no ground for a hold, nor is it a spare.
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

    @property
    def is_confirmed(self) -> bool:
        """Whether more than a score speaks against it: what a hold takes."""
        return self.fault is not None or self.witnesses is not None


@dataclass(frozen=True, slots=True)
class Reporting:
    """How many nodes in service have a sidecar, and how many of those were heard of lately."""

    expected: int
    heard: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """The whole of a decision's ground.

    `hints`: those open, still valid, or made within the hour. `still_held`: nodes that a scheduler may still hold for
    us though their hint has ended. `trips`: the breaker's newest of each group. `stop`: what the kill switch stops.
    `largest_job_gpus`: of the jobs that run; None: none is known. `reporting`: None where no node has a sidecar.
    """

    now: datetime
    nodes: Sequence[NodeFacts]
    hints: Sequence[Hint] = field(default_factory=tuple)
    still_held: frozenset[str] = frozenset()
    trips: Sequence[Trip] = ()
    stop: Stop = "none"
    largest_job_gpus: int | None = None
    reporting: Reporting | None = None

    def open_by_node(self) -> Mapping[str, Hint]:
        """Each node's open hint."""
        return {hint.node: hint for hint in self.hints if hint.state in OPEN_STATES and hint.job is None}

    def refused_by_node(self) -> Mapping[str, Hint]:
        """Each node's newest hint that a person ended and that would still be valid."""
        past = (hint for hint in self.hints if hint.job is None and hint.valid_until > self.now)
        return {hint.node: hint for hint in past if _by_person(hint)}


def acted(hint: Hint) -> datetime:
    """When a hint came to be what it is: made, or escalated."""
    moment = hint.evidence.get("acted")
    return parse_time(moment) if isinstance(moment, str) else hint.created


def holds(hint: Hint) -> bool:
    """Whether an open hint keeps work off its node, or would."""
    return hint.state in OPEN_STATES and hint.action in HOLDING and not hint.is_control


def acted_within(hints: Sequence[Hint], now: datetime, window_s: float) -> list[Hint]:
    """The cordons and drains of a window, whatever has become of them."""
    since = now - timedelta(seconds=window_s)
    return [hint for hint in hints if hint.action in HOLDING and not hint.is_control and acted(hint) >= since]


def closed_at(hint: Hint) -> datetime | None:
    """When a hint was ended; None for one that was not."""
    closed = hint.evidence.get("closed")
    return parse_time(closed["time"]) if isinstance(closed, dict) else None


def _by_person(hint: Hint) -> bool:
    closed = hint.evidence.get("closed")
    return isinstance(closed, dict) and closed.get("by") != ACTOR_POLICY and hint.state in ("withdrawn", "released")

"""What the API answers about hints, as typed records: `decoding.decode` fills them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Placement:
    """What one scheduler holds for a hint, as the server last asked or saw it."""

    scheduler: str
    state: str = ""
    action: str | None = None
    detail: str | None = None
    asked: datetime | None = None
    observed: datetime | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """One item of `GET /hints`; `job` is set where it is asked of a job rather than of the node."""

    id: str
    node: str
    action: str
    state: str
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    owner: str | None = None
    created: datetime | None = None
    valid_until: datetime | None = None
    job: str | None = None
    policy: str | None = None
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class StopSource:
    """One thing that stops what is asked: the setting, a file, a person."""

    source: str
    stop: str
    reason: str = ""
    by: str | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """`GET /stop`: what the kill switch stops (none, holds, all), and by whom."""

    stop: str = "none"
    sources: tuple[StopSource, ...] = ()


@dataclass(frozen=True, slots=True)
class Trip:
    """One item of `GET /breaker`: nodes of a group that called at once."""

    seq: int
    kind: str
    name: str
    why: str = ""
    count: int = 0
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """`GET /budget`: nodes held and how many may be, in all and begun within the hour."""

    held: int = 0
    most: int = 0
    held_within_hour: int = 0
    most_per_hour: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """`GET /policy`: which policy asks, and why its file is not in force, where it is not."""

    version: str = ""
    mode: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Judged hints of one action. `basis`: shadow, control, asked; or acted, of which no precision can be told."""

    action: str
    basis: str
    judged: int = 0
    right: int = 0
    precision: float | None = None
    low: float | None = None
    high: float | None = None
    lead_s: float | None = None
    held_gpu_h: float | None = None
    saved_gpu_h: float | None = None


@dataclass(frozen=True, slots=True)
class Hindsight:
    """`GET /hints/outcomes`: what came of the hints of a window."""

    since: datetime | None = None
    until: datetime | None = None
    false_holds_per_1000_node_days: float | None = None
    tallies: tuple[Tally, ...] = ()

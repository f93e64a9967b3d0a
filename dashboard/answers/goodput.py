"""What `GET /goodput/causes` and `GET /goodput/cluster` answer, as typed records."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Loss:
    """What the interruptions cost that are put down to one thing. `lost_gpu_hours` None = no run's size is known."""

    name: str
    lost_s: float
    unexplained: bool = False
    interruptions: int = 0
    runs: int = 0
    lost_gpu_hours: float | None = None
    cause: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """What all of them cost."""

    lost_s: float = 0.0
    interruptions: int = 0
    lost_gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Causes:
    """One page of losses, the costliest first."""

    items: tuple[Loss, ...]
    total: Total = field(default_factory=Total)
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most that a ratio may be."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Level:
    """A period: GPU-hours by level and by bucket. A level that is not known is not there."""

    since: datetime
    until: datetime
    gpu_hours: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, float] = field(default_factory=dict)
    scheduling_goodput: float | None = None
    runtime_goodput: float | None = None
    program_goodput: float | None = None
    productive_of_existing: float | None = None
    ettr: Range | None = None


@dataclass(frozen=True, slots=True)
class ClusterGoodput:
    """The whole period as a `Level`, its days, and what a reader should know before trusting it."""

    since: datetime
    until: datetime
    gpu_hours: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, float] = field(default_factory=dict)
    scheduling_goodput: float | None = None
    runtime_goodput: float | None = None
    program_goodput: float | None = None
    productive_of_existing: float | None = None
    ettr: Range | None = None
    doubts: tuple[str, ...] = ()
    days: tuple[Level, ...] = ()

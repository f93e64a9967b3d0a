"""What `GET /lemons` answers, as typed records."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Part:
    """The device held to be the culprit; `words` names it for people."""

    words: str
    type: str = "unknown"
    pci: str | None = None
    uuid: str | None = None
    serial: str | None = None
    far_end: str | None = None
    days: int | None = None
    of_days: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One sentence, and the ids behind it."""

    text: str
    signal: str = ""
    events: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """One time out of service; `came_back`: the same fault of the same device showed again."""

    start: datetime
    end: datetime | None = None
    reason: str = ""
    planned: bool | None = None
    came_back: bool = False


@dataclass(frozen=True, slots=True)
class Lemon:
    """A node for repair, and why."""

    node: str
    probability: float
    times_fleet: float
    next_step: str = ""
    rack: str | None = None
    part: Part | None = None
    last_seen: datetime | None = None
    evidence: tuple[Evidence, ...] = ()
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairList:
    """The whole list, the worst first; `found` counts those beyond it too."""

    at: datetime
    nodes: int = 0
    found: int = 0
    window_days: int = 28
    times_fleet: float | None = None
    false_share: float | None = None
    items: tuple[Lemon, ...] = ()

"""What the API answers, as typed records: one dataclass for each JSON object of `/api/v1`.

`decoding.decode` fills them; a missing value is None, never 0.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dashboard.answers.hints import Hint


@dataclass(frozen=True, slots=True)
class Device:
    """Where in a node or fabric something happened."""

    type: str = "node"
    pci: str | None = None
    index: int | None = None
    uuid: str | None = None
    port: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One source of events: when it last spoke, and how much in the last hour."""

    source: str
    last_event: datetime | None = None
    events_1h: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """The model that scores: when it was made, and up to which moment it had learnt."""

    id: str
    created: datetime | None = None
    trained_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class SidecarCount:
    """How many nodes' sidecars are known, and how many of them are silent or in trouble."""

    known: int = 0
    silent: int = 0
    troubled: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """`GET /cluster`: the whole cluster in one object, as of `now` (the replay's clock in a demo)."""

    now: datetime
    mode: str | None = None
    nodes: int = 0
    gpus: int | None = None
    states: dict[str, int] = field(default_factory=dict)
    incidents_24h: int | None = None
    events_1h: int | None = None
    goodput: float | None = None
    run: str | None = None
    target: float | None = None
    model: Model | None = None
    sources: tuple[Source, ...] = ()
    sidecars: SidecarCount | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """What moved a score, and by how much (a share of 1)."""

    text: str
    contribution: float = 0.0
    events: tuple[str, ...] = ()

    @property
    def is_rest(self) -> bool:
        """Whether it is only what the named reasons leave of a score: shown last, and never in their place."""
        return self.text.startswith("the base rate")


@dataclass(frozen=True, slots=True)
class NodeHint:
    """What is asked of the scheduler about a node, in short."""

    id: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class Node:
    """One item of `GET /nodes`. Scores are probabilities of an unplanned outage, None = not scored."""

    node: str
    state: str = "unknown"
    rack: str | None = None
    leaf: str | None = None
    gpu_model: str | None = None
    gpus: int | None = None
    driver: str | None = None
    last_seen: datetime | None = None
    score_24h: float | None = None
    score_7d: float | None = None
    scored_at: datetime | None = None
    reasons: tuple[Reason, ...] = ()
    hint: NodeHint | None = None
    control: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One item of `GET /events`."""

    time: datetime | None
    kind: str
    source: str = ""
    node: str | None = None
    code: int | None = None
    severity: str = "info"
    cause: str = "unknown"
    action: str = "none"
    device: Device = field(default_factory=Device)
    message: str = ""
    id: str | None = None
    meaning: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """What the device is called, where it has a name."""
        found = self.attributes.get("name") or self.attributes.get("dimm")
        return None if found is None else str(found)


@dataclass(frozen=True, slots=True)
class Incident:
    """One item of `GET /incidents`: the events of one fault."""

    id: str
    start: datetime
    end: datetime
    kind: str
    node: str | None = None
    code: int | None = None
    severity: str = "info"
    cause: str = "unknown"
    action: str = "none"
    device: Device = field(default_factory=Device)
    message: str = ""
    count: int = 1
    blast_radius: int | None = None
    name: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A node out of service; no end = still out."""

    start: datetime
    node: str | None = None
    end: datetime | None = None
    state: str | None = None
    reason: str = ""
    planned: bool | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Rollup:
    """A node's GPUs over one hour; None = nobody measured it."""

    time: datetime
    samples: int | None = None
    gpus_seen: int | None = None
    gpu_temp_mean_c: float | None = None
    gpu_temp_max_c: float | None = None
    gpu_temp_spread_c: float | None = None
    memory_temp_max_c: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None
    gpu_util_mean: float | None = None
    sm_clock_min_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class PastScore:
    """A node's scores at one moment."""

    time: datetime
    score_24h: float | None = None
    score_7d: float | None = None


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """What `GET /nodes/{node}` says beyond the item of the list."""

    incidents: tuple[Incident, ...] = ()
    outages: tuple[Outage, ...] = ()
    hints: tuple[Hint, ...] = ()
    telemetry: tuple[Rollup, ...] = ()
    scores: tuple[PastScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One item of `GET /runs`: a training job over its restarts."""

    run: str
    state: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    start: datetime | None = None
    end: datetime | None = None
    wall_s: float | None = None
    goodput: float | None = None
    attempts: int | None = None
    interruptions: int | None = None


@dataclass(frozen=True, slots=True)
class Interruption:
    """One stop of a run: when, why, which device, and the wall seconds that it cost."""

    time: datetime | None
    lost_s: float
    cause: str = "unknown"
    culprit: Device | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """`GET /runs/{run}/goodput`: wall time split into buckets of seconds that sum to `wall_s`."""

    run: str
    wall_s: float
    buckets: dict[str, float]
    nodes: int | None = None
    gpus: int | None = None
    start: datetime | None = None
    end: datetime | None = None
    goodput: float | None = None
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One item of `GET /audit`: who asked for what, and what came of it."""

    time: datetime
    actor: str = ""
    action: str = ""
    subject: str = ""
    detail: Any = None

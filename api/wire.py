"""What answers look like, for the published description; tests hold every answer against these."""

from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from api.answers.node_states import NodeState
from api.wire_hints import HintOut
from api.wire_sidecars import SidecarCounts
from store.records.event import Action, Cause, Severity
from store.records.hint import HintAction, HintState

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[T]
    next_cursor: str | None = None


class RejectedOut(BaseModel):
    """A record that was left out."""

    line: int = Field(examples=[3])
    detail: str = Field(examples=["'severity' is 'bad': use one of info, warning, error, fatal"])


class TakenOut(BaseModel):
    """What became of a body: new records, known ones, those left out (the first hundred are named)."""

    accepted: int = Field(examples=[17])
    known: int = Field(examples=[2])
    rejected: list[RejectedOut]


class DeviceOut(BaseModel):
    """Where in a node or fabric."""

    type: str = Field(examples=["gpu"])
    pci: str | None = Field(examples=["0000:0f:00.0"])
    index: int | None
    uuid: str | None
    port: int | None


class EventOut(BaseModel):
    """One event, as `foreshock parse` prints it, with its id and when it was received."""

    id: str = Field(examples=["3f2a0c5a9b8e4d1f8a7b6c5d4e3f2a1b"])
    time: datetime
    received: datetime
    node: str | None = Field(examples=["gpu-017"])
    source: str = Field(examples=["kernel"])
    kind: str = Field(examples=["xid"])
    code: int | None = Field(examples=[79])
    severity: Severity
    cause: Cause
    action: Action
    device: DeviceOut
    message: str = Field(examples=["GPU has fallen off the bus."])
    meaning: str | None = Field(examples=["Driver can no longer reach the GPU over PCIe"])
    attributes: dict[str, Any] = Field(examples=[{"pid": 1234, "process": "python"}])
    line: int | None
    file: str | None = None


class IncidentOut(BaseModel):
    """The events of one fault, coalesced."""

    id: str
    node: str | None
    start: datetime
    end: datetime
    kind: str = Field(examples=["xid"])
    code: int | None = Field(examples=[79])
    severity: Severity
    cause: Cause
    action: Action
    device: DeviceOut
    message: str
    count: int
    kinds: dict[str, int]
    blast_radius: int | None
    source: str | None = Field(examples=["kernel"])
    name: str | None = Field(examples=["nvme0"])
    meaning: str | None = Field(examples=["Driver can no longer reach the GPU over PCIe"])


class ReasonOut(BaseModel):
    """What moved a score, by how much (probability), and the events behind it."""

    text: str = Field(examples=["3 correctable row remaps in 24 h"])
    contribution: float
    events: list[str]


class ScoreOut(BaseModel):
    """The probability of an unplanned outage of a node within a horizon, as of a moment."""

    node: str
    time: datetime
    horizon_h: int
    score: float
    reasons: list[ReasonOut]
    model: str


class HintMark(BaseModel):
    """A node's open hint, in short."""

    id: str
    action: HintAction
    state: HintState


class NodeOut(BaseModel):
    """A node, its state and its risk; a score is null until a model has scored it.

    `control`: nothing is asked of the scheduler for its score alone, to see what comes.
    """

    node: str = Field(examples=["gpu-017"])
    rack: str | None
    leaf: str | None
    gpu_model: str | None
    gpus: int | None
    driver: str | None
    last_seen: datetime | None
    state: NodeState
    score_24h: float | None
    score_7d: float | None
    scored_at: datetime | None
    reasons: list[ReasonOut]
    hint: HintMark | None
    control: bool


class OutageOut(BaseModel):
    """A node out of service; `end` is null while it lasts."""

    node: str
    start: datetime
    end: datetime | None
    state: str
    reason: str
    user: str | None
    planned: bool
    cause: Cause


class NodeDetail(NodeOut):
    """A node with what is known of its past."""

    incidents: list[IncidentOut]
    outages: list[OutageOut]
    hints: list[HintOut]
    telemetry: list[dict[str, Any]]
    scores: list[dict[str, Any]]


class LinkOut(BaseModel):
    """One cable."""

    switch: str
    port: int
    peer: str
    peer_port: int | None
    peer_type: str


class TopologyNode(BaseModel):
    """A node's place."""

    node: str
    rack: str | None
    leaf: str | None


class TopologyOut(BaseModel):
    """Nodes with their places, and the fabric's cables."""

    nodes: list[TopologyNode]
    links: list[LinkOut]


class AuditOut(BaseModel):
    """Who did what to which hint, when, and what came of it."""

    seq: int
    time: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class RulesOut(BaseModel):
    """A site's rules, as they came into force."""

    seq: int
    time: datetime
    version: str = Field(examples=["9f86d081884c"])
    text: str


class RunOut(BaseModel):
    """A training run over its attempts; what its ledger tells is null until that is computed."""

    run: str
    state: str | None
    nodes: int | None
    gpus: int | None
    start: datetime | None
    end: datetime | None
    wall_s: float | None
    goodput: float | None
    attempts: int | None
    interruptions: int | None
    as_of: datetime | None


class InterruptionOut(BaseModel):
    """One stop of a run: when, why, which device, and the wall seconds that it cost."""

    time: datetime | None
    cause: str
    culprit: dict[str, Any] | None
    lost_s: float


class LedgerOut(BaseModel):
    """A run's wall time in buckets of seconds, which sum to `wall_s` exactly, from the records up to `as_of`."""

    run: str
    nodes: int | None
    gpus: int | None
    start: datetime | None
    end: datetime | None
    wall_s: float
    buckets: dict[str, float]
    goodput: float | None
    bounds: dict[str, tuple[float, float]] = Field(default_factory=dict)
    gpu_hours: dict[str, float] | None = None
    interruptions: list[InterruptionOut]
    unfinished_saves: list[dict[str, Any]] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)
    as_of: datetime


class SourceOut(BaseModel):
    """One source of events that spoke within a day."""

    source: str
    last_event: datetime
    events_1h: int


class ModelOut(BaseModel):
    """The model that scores."""

    id: str
    created: datetime
    trained_until: datetime
    metrics: dict[str, Any]


class ClusterOut(BaseModel):
    """The cluster in numbers, as of `now`."""

    now: datetime
    mode: str
    nodes: int
    gpus: int | None
    states: dict[NodeState, int]
    incidents_24h: int
    events_1h: int
    goodput: float | None
    run: str | None
    target: float
    model: ModelOut | None
    sources: list[SourceOut]
    sidecars: SidecarCounts

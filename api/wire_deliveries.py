"""What answers about deliveries and where to place jobs look like, for the published description."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from api.answers.node_states import NodeState
from api.wire import HintMark

Text = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
MOST_NODES = 200_000


class AttemptOut(BaseModel):
    """One attempt at a delivery; `status` is that of HTTP, null where no answer came."""

    time: datetime
    outcome: Literal["delivered", "retry", "refused", "gone"]
    status: int | None = Field(examples=[204])
    duration_s: float = Field(examples=[0.012])
    detail: str = Field(examples=["HTTP 204"])


class DeliveryOut(BaseModel):
    """What one receiver is owed of a hint; `id` is the webhook-id."""

    id: str = Field(examples=["3f2a0c5a9b8e4d1f.cordon.1740830400.ops"])
    hint: str
    scheduler: str = Field(examples=["ops"])
    action: str = Field(examples=["cordon"])
    state: Literal["owed", "delivered", "failed", "expired"]
    attempts: int
    due: datetime
    last_error: str | None
    log: list[AttemptOut]


class AckIn(BaseModel):
    """What a scheduler that pulls did with a hint: it will do it, it is so, the node works again, it will not do it."""

    scheduler: Text = Field(examples=["volcano"], description="Who says so.")
    result: Literal["taken", "confirmed", "released", "refused"]
    detail: Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00]*$")] = ""


class PlacementIn(BaseModel):
    """A question before a job is placed. Without `nodes` all that are in service are meant."""

    nodes: Annotated[list[Text], Field(max_length=MOST_NODES)] | None = Field(
        default=None, examples=[["gpu-001", "gpu-002"]], description="The nodes to choose from: those that are free."
    )
    count: int | None = Field(default=None, ge=1, le=MOST_NODES, description="How many nodes the job needs.")
    gpus_per_node: int | None = Field(default=None, ge=1, le=1024, description="A node with fewer is not preferred.")


class PlacedNode(BaseModel):
    """A node as a place for work. `avoid` says why not: out, hint, faulty or risk; null: nothing speaks against it."""

    node: str
    state: NodeState
    risk_24h: float | None
    risk_7d: float | None
    leaf: str | None
    rack: str | None
    nvlink_domain: str | None
    gpus: int | None
    hint: HintMark | None
    left_alone: bool = Field(description="Of the control group, or opted out: its risk counts for nothing here.")
    idle: bool | None = Field(description="No job runs on it; null: not known, or the question named the nodes.")
    avoid: Literal["out", "hint", "faulty", "risk"] | None


class PlacementAdviceOut(BaseModel):
    """Which nodes to avoid and which to prefer; scores are null until a model has made them.

    `avoid_from` is the probability within 24 h from which avoiding a node pays for a job of this size. `prefer` holds
    `count` nodes over as few leaves and NVLink domains as may be, or the best of the `usable`, the least risk first,
    but those that no job runs on before the `busy`. `short` says how many are missing. `nodes` tells of those to avoid
    and to prefer, or of all that were asked about where those are few. `unknown` are names that nobody has heard of.
    """

    as_of: datetime
    scored_at: datetime | None
    avoid_from: float = Field(examples=[0.069])
    avoid: list[str]
    avoid_hostlist: str = Field(examples=["gpu-[003,017-018]"])
    prefer: list[str]
    prefer_hostlist: str
    usable: int = Field(description="How many nothing speaks against.")
    busy: int = Field(description="How many of `prefer` run a job.")
    leaves: int
    nvlink_domains: int
    short: int
    jobs_known: bool | None = Field(description="Whether anybody tells of jobs; null: the question named the nodes.")
    unknown: list[str]
    nodes: list[PlacedNode]

"""The policy, its budget, breaker and kill switch, and advice where to place a job: `GET /policy`, `GET /stop` ..."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from store.records.node import NodeState
from wire.hints import HintMarkJson
from wire.message import Always, JsonBody, JsonObject, Text, Time, example, one_of

MOST_NODES = 200_000
MOST_REASON = 500  # characters


class PolicyInForceJson(JsonObject, frozen=True, kw_only=True):
    """The policy in force. `errors` counts changes of its file that were refused; `problem` says why the file as it is
    now is not in force, and is null while it is."""

    version: Annotated[str, example("7a67f599d650")] = ""
    mode: Annotated[Always[str], example("shadow")] = None
    place: Annotated[str, example("/etc/foreshock/policy.yaml")] = ""
    errors: int = 0
    problem: str | None = None
    policy: Annotated[dict[str, Any], example({"mode": "shadow", "quorum": 0.5})] = {}


class PolicyJson(JsonObject, frozen=True, kw_only=True):
    """A policy that came into force at a time; `policy` has every key."""

    seq: Annotated[int, example(3)]
    time: Time
    version: Annotated[str, example("7a67f599d650")]
    policy: dict[str, Any]


class BudgetJson(JsonObject, frozen=True, kw_only=True):
    """Nodes that Foreshock holds (in shadow mode: would hold) and the limits; in total, and begun within the hour."""

    held: int = 0
    most: int = 0
    held_within_hour: int = 0
    most_per_hour: int = 0
    nodes: int = 0


class TripJson(JsonObject, frozen=True, kw_only=True):
    """A trip of the breaker: nothing of its group is held until a person resets it."""

    seq: int
    time: Always[Time] = None
    kind: Annotated[str, example("leaf", "rack", "nvlink_domain", "driver", "code", "cluster")]
    name: str
    why: str = ""
    count: int = 0
    reset: Time | None = None
    reset_by: str | None = None
    backlog: Annotated[str, one_of(Literal["drop", "review"])] | None = None


class ResetJson(JsonBody, frozen=True, kw_only=True):
    """The fate of the nodes that called: `drop`, they call no more; `review`, each waits for a person."""

    backlog: Literal["drop", "review"]


class StopSourceJson(JsonObject, frozen=True, kw_only=True):
    """One source that stops something."""

    source: Annotated[str, one_of(Literal["setting", "file", "switch"])]
    stop: Annotated[str, one_of(Literal["holds", "all"])]
    reason: str = ""
    by: str | None = None
    time: Time | None = None


class StopJson(JsonObject, frozen=True, kw_only=True):
    """What is stopped, by the strongest of the sources: `holds`, no new holds; `all`, releases wait, too."""

    stop: Annotated[str, one_of(Literal["none", "holds", "all"])] = "none"
    sources: tuple[StopSourceJson, ...] = ()


class StopRequestJson(JsonBody, frozen=True, kw_only=True):
    """What to stop, and why; `none` lifts what was stopped over the API or by hand."""

    stop: Literal["none", "holds", "all"]
    reason: Annotated[str, Meta(min_length=1, max_length=MOST_REASON, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")]


class PlacementRequestJson(JsonBody, frozen=True, kw_only=True):
    """A question before a job is placed. Without `nodes`: all nodes in service."""

    nodes: Annotated[
        Annotated[tuple[Text, ...], Meta(max_length=MOST_NODES)] | None,
        Meta(description="The nodes to choose from: those that are free."),
        example(["gpu-001", "gpu-002"]),
    ] = None
    count: Annotated[Annotated[int, Meta(ge=1, le=MOST_NODES)] | None, Meta(description="The nodes of the job.")] = None
    gpus_per_node: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, Meta(description="A node with fewer is not preferred.")
    ] = None


class SchedulableNodeJson(JsonObject, frozen=True, kw_only=True):
    """A node as a place for work. `avoid` says why not: out, hint, faulty or risk; null: no reason against it."""

    node: str
    state: Annotated[str, one_of(NodeState)]
    risk_24h: float | None = None
    risk_7d: float | None = None
    leaf: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    gpus: int | None = None
    hint: HintMarkJson | None = None
    left_alone: Annotated[bool, Meta(description="In the control group, or opted out: its risk does not count here.")]
    idle: Annotated[
        bool | None, Meta(description="No job runs on it; null: unknown, or the request named the nodes.")
    ] = None
    avoid: Annotated[str, one_of(Literal["out", "hint", "faulty", "risk"])] | None = None


class PlacementAdviceJson(JsonObject, frozen=True, kw_only=True):
    """Which nodes to avoid and which to prefer; scores are null until a model has made them.

    `avoid_from` is the probability within 24 h from which avoiding a node pays for a job of this size. `prefer` holds
    `count` nodes over as few leaves and NVLink domains as possible, or the best of the `usable`: the least risk first,
    nodes without a job before the `busy`. `short` says how many are missing. `nodes` describes those to avoid and to
    prefer, or all nodes of the request where those are few. `unknown` are names that no record has.
    """

    as_of: Time
    scored_at: Time | None = None
    avoid_from: Annotated[float, example(0.069)]
    avoid: tuple[str, ...]
    avoid_hostlist: Annotated[str, example("gpu-[003,017-018]")]
    prefer: tuple[str, ...]
    prefer_hostlist: str
    usable: Annotated[int, Meta(description="The number of nodes with no reason against them.")]
    busy: Annotated[int, Meta(description="How many of `prefer` run a job.")]
    leaves: int
    nvlink_domains: int
    short: int
    jobs_known: Annotated[
        bool | None, Meta(description="Whether jobs are reported to the server; null: the request named the nodes.")
    ] = None
    unknown: tuple[str, ...]
    nodes: tuple[SchedulableNodeJson, ...]

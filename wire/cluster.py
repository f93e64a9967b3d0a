"""The whole cluster in one object, and the checks of the server: `GET /cluster`, `GET /readyz`."""

from typing import Annotated, Any, Literal

from wire.message import Always, JsonObject, Sometimes, Time, example, one_of
from wire.money.price import MoneyJson
from wire.sidecars import SidecarCountsJson


class SourceJson(JsonObject, frozen=True, kw_only=True):
    """One source of events that spoke within a day."""

    source: str
    last_event: Always[Time] = None
    events_1h: Always[int] = None


class ScoringModelJson(JsonObject, frozen=True, kw_only=True):
    """The model that scores."""

    id: str
    created: Always[Time] = None
    trained_until: Always[Time] = None
    metrics: dict[str, Any] = {}


class ConfigurationJson(JsonObject, frozen=True, kw_only=True):
    """The server's configuration in force since `loaded`. `problem` says why the files as they are now are not in
    force, and is null while they are; `restart` names the keys whose change waits for a restart."""

    place: Annotated[str, example("/etc/foreshock/foreshock.yaml")]
    version: Annotated[str, example("7a67f599d650")]
    loaded: Time
    errors: int = 0
    problem: str | None = None
    restart: tuple[str, ...] = ()


class MissingNodesJson(JsonObject, frozen=True, kw_only=True):
    """The nodes of the inventory that have never reported: how many, and the first of them by name."""

    count: int = 0
    first: Annotated[tuple[str, ...], example(["gpu-003", "gpu-004"])] = ()


class ReplayJson(JsonObject, frozen=True, kw_only=True):
    """A replay, as of a demo. `end`: where the replayed cluster's clock stops; `ends`: when that is by the clock on the
    wall; `again`: when the replay begins anew; null where it does not."""

    end: Time
    ends: Time
    again: Time | None = None


class ClusterJson(JsonObject, frozen=True, kw_only=True):
    """The cluster in numbers, as of `now` (the replay's clock in a demo, of which `replay` tells).

    `nodes` are those that count; `states` has those besides that the inventory does not know (`unknown`). `inventory`:
    how many nodes are known by whose word; empty where nobody says which nodes there are: then every one that speaks
    counts.

    `stop`: what is stopped of hints, as `GET /stop` says.

    `heard_until`: the newest moment that at least three nodes reported (one in four where there are few); null where
    none ever did. `stale`: that is longer ago than `silent_after_s`: states and scores are of then, and nobody knows
    how the nodes are now.
    """

    now: Time
    heard_until: Time | None = None
    stale: bool = False
    mode: Always[str] = None
    stop: Annotated[str, one_of(Literal["none", "holds", "all"])] = "none"
    nodes: int = 0
    gpus: int | None = None
    states: dict[str, int] = {}
    incidents_24h: Always[int] = None
    events_1h: Always[int] = None
    goodput: float | None = None
    run: str | None = None
    target: Always[float] = None
    model: ScoringModelJson | None = None
    sources: tuple[SourceJson, ...] = ()
    sidecars: Always[SidecarCountsJson] = None
    inventory: Annotated[dict[str, int], example({"scheduler:slurm": 512})] = {}
    never_heard: MissingNodesJson = MissingNodesJson()
    configuration: ConfigurationJson | None = None
    replay: ReplayJson | None = None
    gpu_hour_price: Sometimes[MoneyJson | None] = None


class CheckJson(JsonObject, frozen=True, kw_only=True):
    """Whether the server can do its work: each check by name."""

    status: Annotated[str, example("ok")]
    checks: Annotated[dict[str, str], example({"database": "ok"})]

"""Nodes, their scores, outages and telemetry, links and topology: `GET /nodes`, `GET /scores`, `GET /topology` ..."""

from typing import Annotated, Literal

from msgspec import Meta

from store.records.event import Cause
from store.records.node import NodeState
from wire.events import IncidentJson
from wire.hints import HintJson, HintMarkJson
from wire.message import Always, JsonObject, Sometimes, Time, example, one_of
from wire.money.price import MoneyJson

# Why a score is not told: the node has failed already, or tells nothing.
_WITHHELD = one_of(Literal["out", "faulty", "silent", None])


class ReasonJson(JsonObject, frozen=True, kw_only=True):
    """A reason of a score: by how much it moved the score (probability), and the events behind it."""

    text: Annotated[str, example("3 correctable row remaps in 24 h")]
    contribution: float = 0.0
    events: tuple[str, ...] = ()


class ScoreJson(JsonObject, frozen=True, kw_only=True):
    """The probability of an unplanned outage of a node within a horizon, as of a moment.

    `withheld`: why the newest score is not told (`out`, `faulty`, `silent`): the model speaks of nodes that work.
    """

    node: str
    time: Time
    horizon_h: int
    score: float | None
    withheld: Annotated[str | None, _WITHHELD] = None
    reasons: tuple[ReasonJson, ...] = ()
    model: str


class NodeJson(JsonObject, frozen=True, kw_only=True):
    """A node, its state and its risk; a score is null until a model has scored it, and where it is `withheld`.

    `withheld`: the node is out, faulty or silent, so that no score is told: it would not be low, it would be wrong.

    `control`: the node is in the control group, so its score alone never leads to a hint. `known_by`: who says that
    there is such a node (`operator`, `scheduler:NAME`, `topology`, `archive`, `token`); null: only the node itself.
    `note`: what `inventory: {notes: ...}` says of it.
    """

    node: Annotated[str, example("gpu-017")]
    rack: str | None = None
    leaf: str | None = None
    gpu_model: str | None = None
    gpus: int | None = None
    driver: str | None = None
    last_seen: Time | None = None
    state: Annotated[str, one_of(NodeState)] = "unknown"
    score_24h: float | None = None
    score_7d: float | None = None
    withheld: Annotated[str | None, _WITHHELD] = None
    scored_at: Time | None = None
    reasons: tuple[ReasonJson, ...] = ()
    hint: HintMarkJson | None = None
    control: bool = False
    known_by: Annotated[str | None, example("scheduler:slurm")] = None
    note: str | None = None


class OutageJson(JsonObject, frozen=True, kw_only=True):
    """A node out of service; `end` is null while it lasts."""

    node: Always[str] = None
    start: Time
    end: Time | None = None
    state: Always[str] = None
    reason: str = ""
    user: str | None = None
    planned: Always[bool] = None
    cause: Annotated[Always[str], one_of(Cause)] = None


class RollupJson(JsonObject, frozen=True, kw_only=True):
    """One hour of a node; null = nobody measured it."""

    time: Time
    samples: Annotated[Always[int], example(960)] = None
    gpus_seen: Annotated[Always[int], example(8)] = None
    gpu_temp_mean_c: float | None = None
    gpu_temp_max_c: float | None = None
    gpu_temp_spread_c: float | None = None
    memory_temp_max_c: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None
    gpu_util_mean: float | None = None
    sm_clock_min_mhz: float | None = None


class NodeHourJson(RollupJson, frozen=True, kw_only=True):
    """One hour of a node with its devices."""

    devices: Annotated[
        dict[str, dict[str, tuple[float | None, ...]]],
        Meta(description="Of each device and measure: min, max, mean, last, and how often it changed."),
        example({"gpu:3": {"gpu_temp_c": [52, 71, 60.8, 66, 41]}}),
    ]


class NodeScoresJson(JsonObject, frozen=True, kw_only=True):
    """A node's scores at one moment."""

    time: Time
    score_24h: float | None = None
    score_7d: float | None = None


class DeviceChancesJson(JsonObject, frozen=True, kw_only=True):
    """How likely each state of a device is; together 1."""

    healthy: Annotated[float, example(0.03)]
    degraded: Annotated[float, example(0.9)]
    failing: Annotated[float, example(0.07)]


class DeviceStateJson(JsonObject, frozen=True, kw_only=True):
    """How a device of a node seems to be. `since` is null where only quiet time led to its state."""

    device: Annotated[str, example("GPU 3")]
    state: Annotated[str, one_of(Literal["healthy", "degraded", "failing"])]
    probabilities: DeviceChancesJson
    since: Time | None = None
    why: str = ""


class NodeDetailJson(NodeJson, frozen=True, kw_only=True):
    """A node with its last 30 days; `devices` are those that may not be healthy, the worst first."""

    devices: tuple[DeviceStateJson, ...] = ()

    incidents: tuple[IncidentJson, ...] = ()
    outages: tuple[OutageJson, ...] = ()
    hints: tuple[HintJson, ...] = ()
    telemetry: tuple[RollupJson, ...] = ()
    scores: tuple[NodeScoresJson, ...] = ()


class NodeJobJson(JsonObject, frozen=True, kw_only=True):
    """A job that ran on a node; `end` is null while it runs, `nodes`: how many it has."""

    job: str
    run: str
    state: str
    start: Time | None = None
    end: Time | None = None
    nodes: int | None = None


class ErrorHourJson(JsonObject, frozen=True, kw_only=True):
    """One hour of a node: errors of memory that were corrected and that were not, and of links (NVLink, network)."""

    time: Time
    corrected: int = 0
    uncorrected: int = 0
    links: int = 0


class NodeTimelineJson(JsonObject, frozen=True, kw_only=True):
    """What happened on a node within a window, the oldest first: its jobs, and the hours that had errors.

    `jobs_since`, `errors_since`: since when that is all of it; null: of the whole window.
    """

    node: str
    since: Time
    until: Time
    jobs: tuple[NodeJobJson, ...]
    jobs_since: Time | None = None
    errors: tuple[ErrorHourJson, ...]
    errors_since: Time | None = None


class NodeGpuJson(JsonObject, frozen=True, kw_only=True):
    """What a GPU of a node is called; null where nobody tells. `index` is its number within the node.

    `type` is what its maker calls such a device: `gpu`, `npu`, `mlu` or `hpu`.
    """

    index: int | None = None
    pci: Annotated[str | None, example("0000:0f:00.0")] = None
    uuid: str | None = None
    serial: Annotated[str | None, example("1650523000011")] = None
    type: Annotated[str, example("gpu")] = "gpu"


class DayJson(JsonObject, frozen=True, kw_only=True):
    """One day of a node. `telemetry` is null where there was none; means are weighed by samples."""

    day: Time
    events: dict[str, int]
    telemetry: dict[str, float | None] | None = None


class DaysJson(JsonObject, frozen=True, kw_only=True):
    """The days on which something is known, the oldest first."""

    node: str
    items: tuple[DayJson, ...]


class RiskiestNodeJson(JsonObject, frozen=True, kw_only=True):
    """A node to check: its risk of 24 h, and what keeping it from work is worth, in GPU-hours.

    `failure_gpu_h`: what a failure costs the `job` on it; of a node without one, the largest job that runs, or the
    usual one. `worth_gpu_h`: risk, times the share that acting averts, times that, less `action_gpu_h`; it `pays`
    where that is above 0. The policy has thresholds of its own.
    """

    node: Annotated[str, example("gpu-017")]
    state: Annotated[str, one_of(NodeState)] = "ok"
    score: Always[float] = None
    reasons: tuple[ReasonJson, ...] = ()
    job: str | None = None
    run: str | None = None
    job_gpus: int = 0
    failure_gpu_h: float = 0.0
    action_gpu_h: float = 0.0
    worth_gpu_h: float = 0.0
    pays: bool = False
    failure_money: Sometimes[MoneyJson | None] = None
    action_money: Sometimes[MoneyJson | None] = None
    worth_money: Sometimes[MoneyJson | None] = None


class ListRecordJson(JsonObject, frozen=True, kw_only=True):
    """What came of the lists of the last weeks that were as long, each a horizon after the one before.

    `hit` of `lists` had a node that failed: a `share`, with its interval of 95 %; the scores `said` so often. `failing`
    nodes, and `lost_gpu_h` that runs lost by faults of the nodes listed, are means of a list; `action_gpu_h` is what
    keeping all of them from work costs, `worth_gpu_h` what that leaves.
    """

    nodes: int = 0
    lists: int = 0
    hit: int = 0
    share: Always[float] = None
    low: Always[float] = None
    high: Always[float] = None
    said: Always[float] = None
    failing: Always[float] = None
    lost_gpu_h: float | None = None
    action_gpu_h: float = 0.0
    worth_gpu_h: float | None = None
    lost_money: Sometimes[MoneyJson | None] = None
    action_money: Sometimes[MoneyJson | None] = None
    worth_money: Sometimes[MoneyJson | None] = None


class LeadTimeJson(JsonObject, frozen=True, kw_only=True):
    """How early outages were foreseen, by what failed: the family of the gravest fault around their beginning.

    `words` names it; the hours are from a node's first place in the top 5 % to its outage, percentiles over those
    `foreseen`.
    """

    failed: Annotated[str, example("row_remap")] = ""
    words: Annotated[str, example("row remapping")] = ""
    outages: int = 0
    foreseen: int = 0
    p10_h: float | None = None
    p50_h: float | None = None
    p90_h: float | None = None


class RiskiestJson(JsonObject, frozen=True, kw_only=True):
    """The nodes to check first, and the `chance` that at least one of them fails within the horizon.

    `record` and `leads` are of what the serving model said before, as of `checked`; null and empty until it was judged.
    `averted`: the share of failures that acting is taken to avert. `states`: where no node is at work and has a score,
    how many nodes are in each state.
    """

    as_of: Always[Time] = None
    scored_at: Time | None = None
    horizon_h: int = 24
    model: str | None = None
    averted: float = 1.0
    chance: float | None = None
    items: tuple[RiskiestNodeJson, ...] = ()
    states: dict[str, int] = {}
    checked: Time | None = None
    record: ListRecordJson | None = None
    leads: tuple[LeadTimeJson, ...] = ()


class LinkScoreJson(JsonObject, frozen=True, kw_only=True):
    """The probability that a link is lost within a horizon, with reasons that add up to it.

    `node`: the host at its end, null between two switches. `own_risk`: what the link's own signs add to the probability
    of one that shows nothing, whatever its neighbours show. `stop_risk`: that it is lost and this stops the job on its
    host; null where nothing here has shown that one could tell.
    """

    link: str
    ends: tuple[str, ...] = ()
    horizon_h: Always[int] = None
    time: Time
    score: Always[float] = None
    reasons: tuple[ReasonJson, ...] = ()
    model: Always[str] = None
    node: str | None = None
    own_risk: float | None = None
    stop_risk: float | None = None


class LinkJson(JsonObject, frozen=True, kw_only=True):
    """One cable with both its ends; `known_by` is the node that told of it, null where the fabric did."""

    switch: str
    port: int
    peer: str
    peer_port: int | None = None
    peer_type: str
    switch_guid: str | None = None
    switch_lid: int | None = None
    port_name: Annotated[str | None, example("Ethernet1/12")] = None
    peer_guid: str | None = None
    peer_port_guid: str | None = None
    peer_lid: int | None = None
    hca: Annotated[str | None, example("mlx5_3")] = None
    rate: Annotated[str | None, example("4xNDR")] = None
    known_by: str | None = None


class NodePlaceJson(JsonObject, frozen=True, kw_only=True):
    """A node's rack and leaf switch."""

    node: str
    rack: str | None = None
    leaf: str | None = None


class TopologyJson(JsonObject, frozen=True, kw_only=True):
    """Nodes with their racks and leaves, and the fabric's cables."""

    nodes: tuple[NodePlaceJson, ...]
    links: tuple[LinkJson, ...]


class BadLinkJson(JsonObject, frozen=True, kw_only=True):
    """A cable that erred within a day, from a switch's port to a host (`hca`) or another switch."""

    switch: str
    port: Annotated[int, example(12)]
    peer: str
    peer_type: Annotated[str, one_of(Literal["hca", "switch"])] = "hca"
    errors: Annotated[int, example(42)] = 0
    kind: Annotated[str, example("link_down")] = ""


class MapJson(JsonObject, frozen=True, kw_only=True):
    """The map of the fabric in columns: a value for each node, by name.

    `blocks_by` says what a block is: a leaf, a rack, or (where nobody tells of either) nodes that follow each other by
    name. `block`, `state` and `run` are places in `blocks`, `states` and `runs`. `risk` is the probability of an
    outage within 24 h, null where there is none or it is withheld; `temperature_c` the hottest GPU of the last hour
    known, null where that is older than two; `link_errors` those of 24 h. `links` are the cables that erred alone.

    A difference names its `since` and the `rows` that its columns have values for; `blocks`, `spines`, `node` and
    `block` are then empty: they are as they were.
    """

    since: str | None = None
    rows: tuple[int, ...] | None = None
    blocks_by: Annotated[Always[str], one_of(Literal["leaf", "rack", "name"])] = None
    blocks: tuple[str, ...] = ()
    spines: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    block: tuple[int, ...] = ()
    state: tuple[int, ...] = ()
    risk: tuple[float | None, ...] = ()
    temperature_c: tuple[int | None, ...] = ()
    link_errors: tuple[int, ...] = ()
    run: tuple[int | None, ...] = ()
    links: tuple[BadLinkJson, ...] = ()


class SearchResultJson(JsonObject, frozen=True, kw_only=True):
    """What bears a name: `name` is its own, `detail` what tells it apart; `node` null where it has none."""

    kind: Annotated[str, one_of(Literal["node", "device", "run", "incident", "verdict", "hint"])]
    id: str
    name: Annotated[str, example("gpu-017")]
    detail: Annotated[str, example("rack r3, leaf leaf004")] = ""
    node: str | None = None

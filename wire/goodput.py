"""Runs, their ledgers, losses by cause and the cluster's goodput: `GET /runs`, `GET /goodput/causes` ...

Money is there where the configuration has a `gpu_hour_price`, of the GPU-hours beside it (`wire/money/price.py`).
"""

from typing import Annotated, Any

import msgspec

from store.records.verdict import CauseClass
from wire.events import DeviceJson
from wire.message import Always, JsonObject, Page, Sometimes, Time, one_of
from wire.money.price import MoneyJson


class RunJson(JsonObject, frozen=True, kw_only=True):
    """A training run over its attempts; the fields of its ledger are null until that is computed."""

    run: str
    state: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    start: Time | None = None
    end: Time | None = None
    wall_s: float | None = None
    goodput: float | None = None
    attempts: int | None = None
    interruptions: int | None = None
    as_of: Time | None = None


class CulpritJson(DeviceJson, frozen=True, kw_only=True):
    """The device that stopped a run, and its node."""

    node: Sometimes[str | None] = None


class VerdictMarkJson(JsonObject, frozen=True, kw_only=True):
    """A verdict in short; `id` is null where it was made for the ledger alone."""

    id: str | None = None
    cause_class: Annotated[str, one_of(CauseClass)] = msgspec.field(name="class")
    name: str
    probability: float
    reason: str = ""


class KeptSaveJson(JsonObject, frozen=True, kw_only=True):
    """The newest whole save at a stop, and until when it keeps what was done; `iteration` is null where not told."""

    iteration: int | None = None
    time: Time


class InterruptionJson(JsonObject, frozen=True, kw_only=True):
    """One stop of a run: when, why, which device, by which verdict, and the wall seconds that it cost.

    `kept` = the save to go on from, `torn` = the iteration of a later one that is not whole.
    """

    time: Time | None = None
    cause: str = "unknown"
    culprit: CulpritJson | None = None
    verdict: Sometimes[VerdictMarkJson | None] = None
    kept: Sometimes[KeptSaveJson | None] = None
    torn: Sometimes[int | None] = None
    lost_s: float


class LedgerJson(JsonObject, frozen=True, kw_only=True):
    """A run's wall time in buckets of seconds, which sum to `wall_s` exactly, from the records up to `as_of`."""

    run: str
    nodes: int | None = None
    gpus: int | None = None
    start: Time | None = None
    end: Time | None = None
    wall_s: float
    buckets: dict[str, float]
    goodput: float | None = None
    bounds: Sometimes[dict[str, tuple[float, float]]] = {}
    gpu_hours: Sometimes[dict[str, float] | None] = None
    money: Sometimes[dict[str, MoneyJson | None] | None] = None
    interruptions: tuple[InterruptionJson, ...] = ()
    unfinished_saves: Sometimes[tuple[dict[str, Any], ...]] = ()
    details: Sometimes[dict[str, Any]] = {}
    as_of: Always[Time] = None


class AttemptJson(JsonObject, frozen=True, kw_only=True):
    """One attempt of a run, the first is number 1: its own time; `end` is null while it goes on.

    `start_s` counts from the run's start. `state`: the scheduler's word for its end. `parts`: bucket, start (seconds
    since the run's start) and length in seconds of what was not productive; the rest of its time was. The wait before
    its start, from the end of those before it, is the first of them.
    """

    number: int
    start: Time | None = None
    end: Time | None = None
    start_s: float
    length_s: float
    state: str
    nodes: int | None = None
    gpus: int | None = None
    parts: tuple[tuple[str, float, float], ...] = ()
    interruption: InterruptionJson | None = None


class AttemptsJson(JsonObject, frozen=True, kw_only=True):
    """The newest attempts of a run, the oldest first; `attempts`: how many it had.

    `shortest_s`: parts shorter than that are left out of them; 0 = none is.
    """

    run: str
    start: Time | None = None
    wall_s: float
    attempts: int
    shortest_s: float = 0.0
    items: tuple[AttemptJson, ...]


class LossGroupJson(JsonObject, frozen=True, kw_only=True):
    """The interruptions of one cause, node, device ...: beside `name`, the columns that `by` names."""

    name: str
    unexplained: bool = False
    interruptions: int = 0
    runs: int = 0
    lost_s: float
    lost_work_s: float = 0.0
    restart_s: float = 0.0
    lost_gpu_hours: float | None = None
    lost_money: Sometimes[MoneyJson | None] = None
    without_gpus: int = 0
    cause: Sometimes[str | None] = None
    node: Sometimes[str | None] = None


class LossTotalJson(JsonObject, frozen=True, kw_only=True):
    """The cost of all interruptions of the window, on all pages."""

    interruptions: int = 0
    lost_s: float = 0.0
    lost_gpu_hours: float | None = None
    lost_money: Sometimes[MoneyJson | None] = None
    without_gpus: int = 0


class CausesJson(Page[LossGroupJson], frozen=True, kw_only=True):
    """Losses by cause, the costliest first; the items of all pages sum to `total`."""

    by: str = ""
    since: Time | None = None
    until: Time | None = None
    total: LossTotalJson = LossTotalJson()


class LossJson(JsonObject, frozen=True, kw_only=True):
    """One interruption of a run, and everything that explains it."""

    time: Time
    run: str
    cause: str
    code: str | None = None
    node: str | None = None
    device: str | None = None
    leaf: str | None = None
    driver: str | None = None
    incident: str | None = None
    unexplained: bool
    lost_s: float
    lost_gpu_hours: float | None = None
    lost_money: Sometimes[MoneyJson | None] = None


class RangeJson(JsonObject, frozen=True, kw_only=True):
    """The least and the most that a ratio may be."""

    least: float
    most: float


class GoodputLevelJson(JsonObject, frozen=True, kw_only=True):
    """A period: GPU-hours by level and by bucket, and ratios (0-1); null where they cannot be known."""

    since: Time
    until: Time
    gpu_hours: dict[str, float | None] = {}
    money: Sometimes[dict[str, MoneyJson | None]] = {}
    buckets: dict[str, float] = {}
    unmeasured_run_hours: float = 0.0
    scheduling_goodput: float | None = None
    runtime_goodput: float | None = None
    program_goodput: float | None = None
    ml_productivity_goodput: float | None = None
    productive_of_existing: float | None = None
    ettr: RangeJson | None = None


class MfuJson(JsonObject, frozen=True, kw_only=True):
    """A run's MFU (0-1), its inputs, and the inputs that are missing."""

    run: str
    mfu: float | None = None
    shape: dict[str, int] | None = None
    step_s: float | None = None
    gpus: int | None = None
    gpu_model: str | None = None
    peak_tflops: float | None = None
    missing: tuple[str, ...]


class ClusterGoodputJson(GoodputLevelJson, frozen=True, kw_only=True):
    """The whole cluster over whole UTC days: `program_covers` = the share of productive GPU time whose MFU is known."""

    program_covers: float = 0.0
    doubts: tuple[str, ...] = ()
    days: tuple[GoodputLevelJson, ...] = ()
    runs: tuple[MfuJson, ...] = ()

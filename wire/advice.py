"""Advice on goodput: `GET /advice/checkpoint`, `/advice/spares`, `/advice/gains`, `/what-if`; the fields for readers.

`money_per_day`: what the change is worth in a day of the run's GPUs, where the configuration has a `gpu_hour_price`.
"""

from wire.message import JsonObject, Sometimes
from wire.money.price import MoneyJson


class CheckpointInputsJson(JsonObject, frozen=True, kw_only=True):
    """Measured inputs of a run: failures over node-days, the stall of a save, the time to restart after a failure."""

    nodes: int
    failures: int
    node_days: float
    save_s: float
    restart_s: float
    interval_s: float | None = None


class CurvePointJson(JsonObject, frozen=True, kw_only=True):
    """The goodput expected of one interval between saves; the lowest and highest that the measured inputs allow."""

    interval_s: float
    goodput: float
    low: float
    high: float


class CheckpointAdviceJson(JsonObject, frozen=True, kw_only=True):
    """`GET /advice/checkpoint`: the time between two saves that loses least."""

    run: str
    inputs: CheckpointInputsJson
    interval_s: float
    mttf_s: float
    rate_low: float | None = None
    rate_high: float | None = None
    rate_is_measured: bool = True
    interval_shortest_s: float | None = None
    interval_longest_s: float | None = None
    goodput_now: float | None = None
    goodput_advised: float | None = None
    curve: tuple[CurvePointJson, ...] = ()
    source: str = ""
    gpus: int | None = None
    gain: Sometimes[float | None] = None
    money_per_day: Sometimes[MoneyJson | None] = None


class ComponentRateJson(JsonObject, frozen=True, kw_only=True):
    """A component's failures, and the hours between two of all nodes with their 95 % interval; null: none was seen."""

    component: str
    failures: int
    mtbf_h: float | None = None
    mtbf_low_h: float
    mtbf_high_h: float | None = None


class ComponentRatesJson(JsonObject, frozen=True, kw_only=True):
    """Failures over node-days; the component `all` is their sum, and the times are of `nodes` nodes."""

    node_days: float
    nodes: int
    components: tuple[ComponentRateJson, ...] = ()


class MtbfJson(JsonObject, frozen=True, kw_only=True):
    """`GET /advice/mtbf`: the time between stops of the runs, and between outages of the cluster; null: not known."""

    runs: ComponentRatesJson | None = None
    cluster: ComponentRatesJson | None = None


class SparesInputsJson(JsonObject, frozen=True, kw_only=True):
    """Measured inputs of the cluster: unplanned outages over node-days, and their mean length."""

    nodes: int
    outages: int
    node_days: float
    mttr_s: float


class SparesAdviceJson(JsonObject, frozen=True, kw_only=True):
    """`GET /advice/spares`: how many spare nodes suffice with probability `confidence` at any moment."""

    inputs: SparesInputsJson
    spares: int
    confidence: float
    expected_down: float
    spares_low: int | None = None
    spares_high: int | None = None
    source: str = ""


class GainJson(JsonObject, frozen=True, kw_only=True):
    """A change and its worth in goodput (0-1), with the 95 % interval; `says` in words."""

    lever: str
    gain: float
    low: float
    high: float
    says: str = ""
    money_per_day: Sometimes[MoneyJson | None] = None


class GainsAdviceJson(JsonObject, frozen=True, kw_only=True):
    """`GET /advice/gains`: the gain of each change of a run, the largest first."""

    run: str
    gains: tuple[GainJson, ...]


class WhatIfInputsJson(JsonObject, frozen=True, kw_only=True):
    """What the run's history measured, in seconds: means of its stops and saves, the median time between saves.

    `restart_s`: startup and load after a stop.
    """

    interval_s: float
    save_s: float
    detection_s: float
    waiting_s: float
    restart_s: float


class GoodputComparisonJson(JsonObject, frozen=True, kw_only=True):
    """Goodput (0-1) as it was and with the change, and the gain with its 95 % interval where one was determined."""

    as_was: float
    changed: float
    gain: float
    low: float | None = None
    high: float | None = None
    money_per_day: Sometimes[MoneyJson | None] = None


class WhatIfJson(JsonObject, frozen=True, kw_only=True):
    """`GET /what-if`: the history lived again with a change, and the same by the formula; `inputs` as they were."""

    run: str
    measured: float
    stops: int
    stops_then: float
    replayed: GoodputComparisonJson
    analytic: GoodputComparisonJson
    inputs: WhatIfInputsJson | None = None
    gpus: int | None = None
    formula: str = ""
    source: str = ""

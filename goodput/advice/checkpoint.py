"""How often to save a checkpoint: from the measured failure rate, save stall and way back of a run.

    advice = advise(CheckpointInputs(nodes=64, failures=6, node_days=1280.0, save_s=35.0, restart_s=900.0))
    advice.interval_s

The formulas are in `goodput/formulas/checkpoint_interval.py`.
"""

from dataclasses import asdict, dataclass
from typing import Any

from goodput.formulas.checkpoint_interval import (
    PredictionPlan,
    Predictor,
    SaveKind,
    daly_s,
    expected_goodput,
    in_background,
    optimum_s,
    plan,
    two_levels,
    young_s,
)
from goodput.formulas.failure_rates import interval
from goodput.timeline import DAY_S

# Llama 3 on 16,384 H100 (FIELD B4, D7): used, and said so, where a run has seen no failure yet.
FIELD_RATE_PER_NODE_DAY = 3.8 / 1000

FORMULA = "1 - L D = exp(-L (D + w)): the exact optimum of the memoryless form; L = N r"
GOODPUT_FORMULA = "L D / (exp(L R) (exp(L (D + w)) - 1)); L = N r"
SOURCE = "Young 1974 (first order), Daly 2006 (higher order, memoryless form); FIELD B2"
# The share of failures that a copy in memory outlives, where the run's own stops do not tell: our assumption.
MEMORY_SHARE = 0.9
# The curve of goodput over the interval: so many points, and so many times shorter and longer than the advised one.
CURVE_POINTS = 33
CURVE_REACH = 8.0


@dataclass(frozen=True, slots=True)
class CheckpointInputs:
    """What was measured.

    Attributes:
        nodes: nodes of the run.
        failures: interruptions seen.
        node_days: over how many node-days.
        save_s: mean stall of a save, as the run saves now (`goodput/wall_time/saves.py`), seconds.
        restart_s: mean way back after an interruption (detection, waiting, startup, load), seconds.
        interval_s: median time between two saves now; None where nobody saved twice.
        save_low_s, save_high_s: the 95 % interval of the mean stall; None where it was not determined.
        restart_low_s, restart_high_s: the same of the mean way back.
        memory_share: the share of the stops that spared the memory of their nodes; None where no stop tells.
    """

    nodes: int
    failures: int
    node_days: float
    save_s: float
    restart_s: float
    interval_s: float | None = None
    save_low_s: float | None = None
    save_high_s: float | None = None
    restart_low_s: float | None = None
    restart_high_s: float | None = None
    memory_share: float | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The goodput expected of one interval between saves; the lowest and highest that the measured inputs allow."""

    interval_s: float
    goodput: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """The advised interval between two saves, what it would bring, and all that it was derived from."""

    inputs: CheckpointInputs
    rate_per_node_day: float
    rate_low: float
    rate_high: float
    rate_is_measured: bool
    mttf_s: float
    first_order_s: float
    higher_order_s: float
    interval_s: float
    interval_shortest_s: float
    interval_longest_s: float
    goodput_now: float | None
    goodput_advised: float
    goodput_low: float
    goodput_high: float
    background: SaveKind
    memory: SaveKind
    curve: tuple[CurvePoint, ...]
    prediction: PredictionPlan | None = None
    formula: str = FORMULA
    goodput_formula: str = GOODPUT_FORMULA
    source: str = SOURCE

    def to_json(self) -> dict[str, Any]:
        """The advice as plain values; times in seconds, rates per node-day."""
        prediction = None if self.prediction is None else self.prediction.to_json()
        return {**asdict(self), "prediction": prediction}


def advise(inputs: CheckpointInputs, confidence: float = 0.95, predictor: Predictor | None = None) -> CheckpointAdvice:
    """The interval that loses least, with what a predictor and other kinds of saves would change.

    Its shortest and longest value, and the goodput's lowest and highest, are those at the ends of the intervals of the
    failure rate (exact Poisson), the stall and the way back taken together: no less sure than `confidence`.

    Raises:
        ValueError: nodes, node-days or the save's stall are not above zero.
    """
    if inputs.nodes < 1 or inputs.node_days <= 0 or inputs.save_s <= 0:
        raise ValueError("advice needs at least one node, some time observed and a save stall above zero")
    measured = inputs.failures > 0
    low, high = (mean / inputs.node_days for mean in interval(inputs.failures, confidence))
    rate = inputs.failures / inputs.node_days if measured else FIELD_RATE_PER_NODE_DAY
    mttf = _mttf_s(inputs.nodes, rate)
    worst, best = _mttf_s(inputs.nodes, max(high, rate)), _mttf_s(inputs.nodes, low or rate)
    save_low, save_high = inputs.save_low_s or inputs.save_s, inputs.save_high_s or inputs.save_s
    back_low = inputs.restart_s if inputs.restart_low_s is None else inputs.restart_low_s
    back_high = inputs.restart_s if inputs.restart_high_s is None else inputs.restart_high_s
    advised = max(1.0, optimum_s(inputs.save_s, mttf))
    now = inputs.interval_s
    ends = ((inputs.save_s, inputs.restart_s, mttf), (save_high, back_high, worst), (save_low, back_low, best))
    share = MEMORY_SHARE if inputs.memory_share is None else inputs.memory_share
    return CheckpointAdvice(
        inputs=inputs,
        rate_per_node_day=rate,
        rate_low=low,
        rate_high=high,
        rate_is_measured=measured,
        mttf_s=mttf,
        first_order_s=young_s(inputs.save_s, mttf),
        higher_order_s=daly_s(inputs.save_s, mttf),
        interval_s=advised,
        interval_shortest_s=max(1.0, optimum_s(save_low, worst)),
        interval_longest_s=max(1.0, optimum_s(save_high, best)),
        goodput_now=None if not now else expected_goodput(now, inputs.save_s, inputs.restart_s, mttf),
        goodput_advised=expected_goodput(advised, inputs.save_s, inputs.restart_s, mttf),
        goodput_low=expected_goodput(advised, *ends[1]),
        goodput_high=expected_goodput(advised, *ends[2]),
        curve=_curve(advised, now, ends),
        background=in_background(inputs.save_s, inputs.save_s, inputs.restart_s, mttf),
        memory=two_levels(inputs.save_s, share, inputs.restart_s, mttf),
        prediction=None if predictor is None else plan(predictor, inputs.save_s, mttf),
    )


def _curve(
    advised_s: float, now_s: float | None, ends: tuple[tuple[float, float, float], ...]
) -> tuple[CurvePoint, ...]:
    """Intervals in equal ratios on both sides of the advised one, as far as the present one or CURVE_REACH away."""
    reach = CURVE_REACH if not now_s else max(CURVE_REACH, 1.25 * max(now_s / advised_s, advised_s / now_s))
    half = CURVE_POINTS // 2
    intervals = [advised_s * reach ** (step / half) for step in range(-half, half + 1)]
    return tuple(CurvePoint(one, *(expected_goodput(one, *end) for end in ends)) for one in intervals)


def _mttf_s(nodes: int, rate_per_node_day: float) -> float:
    """Mean time to failure of the whole run, seconds."""
    return DAY_S / (nodes * rate_per_node_day)

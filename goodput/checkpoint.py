"""How often to save a checkpoint: from the measured failure rate, save stall and way back of a run.

    advice = advise(CheckpointInputs(nodes=64, failures=6, node_days=1280.0, save_s=35.0, restart_s=900.0))
    advice.interval_s

Formulas (FIELD B2): first order Young (1974), sqrt(2 w M); higher order Daly (2006); the goodput expected at
an interval by the exact memoryless form lambda D / (e^(lambda R) (e^(lambda (D + w)) - 1)).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from goodput.poisson import interval

# Llama 3 on 16,384 H100 (FIELD B4, D7): used, and said so, where a run has seen no failure yet.
FIELD_RATE_PER_NODE_DAY = 3.8 / 1000
DAY_S = 86_400.0

FORMULA = "D = sqrt(2 w M) (1 + sqrt(w / 2M) / 3 + w / 18M) - w for w < 2M, else M; M = 1 / (N r)"
GOODPUT_FORMULA = "L D / (exp(L R) (exp(L (D + w)) - 1)); L = N r"
SOURCE = "Young 1974 (first order), Daly 2006 (higher order, memoryless); FIELD B2"


@dataclass(frozen=True, slots=True)
class CheckpointInputs:
    """What was measured.

    Attributes:
        nodes: nodes of the run.
        failures: interruptions seen.
        node_days: over how many node-days.
        save_s: median stall of a save, seconds.
        restart_s: mean way back after an interruption (detection, waiting, startup, load), seconds.
        interval_s: median time between two saves now; None where nobody saved twice.
    """

    nodes: int
    failures: int
    node_days: float
    save_s: float
    restart_s: float
    interval_s: float | None = None


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
    interval_s: float
    interval_shortest_s: float
    interval_longest_s: float
    goodput_now: float | None
    goodput_advised: float
    formula: str = FORMULA
    goodput_formula: str = GOODPUT_FORMULA
    source: str = SOURCE

    def to_json(self) -> dict[str, Any]:
        """The advice as plain values; times in seconds, rates per node-day."""
        return asdict(self)


def young_s(save_s: float, mttf_s: float) -> float:
    """Young's first-order interval, seconds (FIELD B2)."""
    return math.sqrt(2 * save_s * mttf_s)


def daly_s(save_s: float, mttf_s: float) -> float:
    """Daly's higher-order interval, seconds (FIELD B2)."""
    if save_s >= 2 * mttf_s:
        return mttf_s
    ratio = save_s / (2 * mttf_s)
    return young_s(save_s, mttf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def expected_goodput(interval_s: float, save_s: float, restart_s: float, mttf_s: float) -> float:
    """Productive share of wall time (0-1) under memoryless failures, exact (FIELD B2)."""
    rate = 1 / mttf_s
    exponent = rate * (interval_s + save_s)
    if exponent + rate * restart_s > 700:  # beyond a float's range: nothing is ever finished
        return 0.0
    return rate * interval_s / (math.exp(rate * restart_s) * math.expm1(exponent))


def advise(inputs: CheckpointInputs, confidence: float = 0.95) -> CheckpointAdvice:
    """The interval that loses least.

    Raises:
        ValueError: nodes, node-days or the save's stall are not above zero.
    """
    if inputs.nodes < 1 or inputs.node_days <= 0 or inputs.save_s <= 0:
        raise ValueError("advice needs at least one node, some time observed and a save stall above zero")
    measured = inputs.failures > 0
    low, high = (mean / inputs.node_days for mean in interval(inputs.failures, confidence))
    rate = inputs.failures / inputs.node_days if measured else FIELD_RATE_PER_NODE_DAY
    mttf = _mttf_s(inputs.nodes, rate)
    advised = max(1.0, daly_s(inputs.save_s, mttf))
    now = inputs.interval_s
    return CheckpointAdvice(
        inputs=inputs,
        rate_per_node_day=rate,
        rate_low=low,
        rate_high=high,
        rate_is_measured=measured,
        mttf_s=mttf,
        first_order_s=young_s(inputs.save_s, mttf),
        interval_s=advised,
        interval_shortest_s=max(1.0, daly_s(inputs.save_s, _mttf_s(inputs.nodes, max(high, rate)))),
        interval_longest_s=max(1.0, daly_s(inputs.save_s, _mttf_s(inputs.nodes, low or rate))),
        goodput_now=None if not now else expected_goodput(now, inputs.save_s, inputs.restart_s, mttf),
        goodput_advised=expected_goodput(advised, inputs.save_s, inputs.restart_s, mttf),
    )


def _mttf_s(nodes: int, rate_per_node_day: float) -> float:
    """Mean time to failure of the whole run, seconds."""
    return DAY_S / (nodes * rate_per_node_day)

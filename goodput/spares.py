"""How many spare nodes cover nearly every day: the quantile of how many nodes are down at once.

    advise(SparesInputs(nodes=1250, outages=1050, node_days=456_000.0, mttr_s=86_400.0)).spares

A node is down with probability p = r MTTR / (1 + r MTTR); the number down is binomial (FIELD B5, after ByteRobust).
"""

from dataclasses import asdict, dataclass
from typing import Any

from goodput.poisson import binomial_quantile, interval

DAY_S = 86_400.0
FORMULA = "least n with P(Binomial(N, p) <= n) >= confidence; p = r T / (1 + r T), T = mean time to repair"
SOURCE = "P99 of the binomial as ByteRobust sizes its standby nodes; FIELD B5"


@dataclass(frozen=True, slots=True)
class SparesInputs:
    """What was measured: unplanned outages over node-days in service, and their mean length in seconds."""

    nodes: int
    outages: int
    node_days: float
    mttr_s: float


@dataclass(frozen=True, slots=True)
class SparesAdvice:
    """The advised number of spares, the span that the sample allows, and all that it was derived from."""

    inputs: SparesInputs
    confidence: float
    rate_per_node_day: float
    rate_low: float
    rate_high: float
    expected_down: float
    spares: int
    spares_low: int
    spares_high: int
    formula: str = FORMULA
    source: str = SOURCE

    def to_json(self) -> dict[str, Any]:
        """The advice as plain values; rates per node-day."""
        return asdict(self)


def share_down(rate_per_node_day: float, mttr_s: float) -> float:
    """The share of time (0-1) that a node is down: r T / (1 + r T)."""
    load = rate_per_node_day * mttr_s / DAY_S
    return load / (1 + load)


def advise(inputs: SparesInputs, confidence: float = 0.99) -> SparesAdvice:
    """The spares that suffice with probability `confidence`, at any moment.

    Raises:
        ValueError: nodes or node-days are not above zero, or the confidence is not between 0 and 1.
    """
    if inputs.nodes < 1 or inputs.node_days <= 0 or inputs.mttr_s < 0:
        raise ValueError("advice needs at least one node, some time observed and a repair time of at least zero")
    low, high = (mean / inputs.node_days for mean in interval(inputs.outages))
    rate = inputs.outages / inputs.node_days

    def needed(rate_per_node_day: float) -> int:
        return binomial_quantile(confidence, inputs.nodes, share_down(rate_per_node_day, inputs.mttr_s))

    return SparesAdvice(
        inputs=inputs,
        confidence=confidence,
        rate_per_node_day=rate,
        rate_low=low,
        rate_high=high,
        expected_down=inputs.nodes * share_down(rate, inputs.mttr_s),
        spares=needed(rate),
        spares_low=needed(low),
        spares_high=needed(high),
    )

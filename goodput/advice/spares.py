"""How many spare nodes cover nearly every day: the quantile of how many nodes are down at once.

    advise(SparesInputs(nodes=1250, outages=1050, node_days=456_000.0, mttr_s=86_400.0)).spares

A node is down with probability p = r MTTR / (1 + r MTTR); the number down is binomial (FIELD B5, after ByteRobust).
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from goodput.formulas.failure_rates import binomial_quantile, interval, mass
from goodput.timeline import DAY_S

FORMULA = "least n with P(Binomial(N, p) <= n) >= confidence; p = r T / (1 + r T), T = mean time to repair"
# Sizes that the count is told for beside the asked one, in nodes.
SCALES = (128, 512, 1_250, 2_048, 12_500)
# Between a driver's reload and the swap of a board: one to 72 hours (FIELD B5, the author's estimate there).
ASSUMED_REPAIR_S = DAY_S
SOURCE = "P99 of the binomial as ByteRobust sizes its standby nodes; FIELD B5"


@dataclass(frozen=True, slots=True)
class SparesInputs:
    """What was measured: unplanned outages over node-days in service, and their mean length in seconds.

    `mttr_low_s`, `mttr_high_s`: the 95 % interval of that mean; None where it was not determined.
    """

    nodes: int
    outages: int
    node_days: float
    mttr_s: float
    mttr_low_s: float | None = None
    mttr_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class SparesAt:
    """The spares for a number of nodes, with the least and the most that the sample allows."""

    nodes: int
    spares: int
    low: int
    high: int


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
    curve: tuple[SparesAt, ...]
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
    repair_low = inputs.mttr_s if inputs.mttr_low_s is None else inputs.mttr_low_s
    repair_high = inputs.mttr_s if inputs.mttr_high_s is None else inputs.mttr_high_s
    least, usual, most = share_down(low, repair_low), share_down(rate, inputs.mttr_s), share_down(high, repair_high)

    def needed(nodes: int) -> SparesAt:
        return SparesAt(nodes, *(binomial_quantile(confidence, nodes, share) for share in (usual, least, most)))

    requested = needed(inputs.nodes)
    return SparesAdvice(
        inputs=inputs,
        confidence=confidence,
        rate_per_node_day=rate,
        rate_low=low,
        rate_high=high,
        expected_down=inputs.nodes * usual,
        spares=requested.spares,
        spares_low=requested.low,
        spares_high=requested.high,
        curve=tuple(requested if nodes == inputs.nodes else needed(nodes) for nodes in sorted({*SCALES, inputs.nodes})),
    )


def expected_wait_s(failures_per_s: float, mttr_s: float, spares: int) -> float:
    """How long a failure waits for a node on average, seconds: repairs of exponential length, failures at random.

    A failure finds k nodes out (Poisson, mean `failures_per_s` times `mttr_s`) and takes one more; with n = k + 1 out
    it waits until no more than the spares are: MTTR (1 / n + 1 / (n - 1) + ... + 1 / (spares + 1)).
    """
    mean_out = failures_per_s * mttr_s
    total = wait = repairs = 0.0
    out = 0
    while total < 1 - 1e-9 and out < mean_out + 40 * (math.sqrt(mean_out) + 1):
        chance = mass(out, mean_out)
        out += 1
        repairs += mttr_s / out if out > spares else 0.0
        total += chance
        wait += chance * repairs
    return wait


def waits_s(failed_s: Sequence[float], repair_s: Sequence[float], spares: int) -> list[float]:
    """How long each failure waits for a node: none while a spare is there, else until the next is repaired.

    Each failure takes one node out for its repair; the nodes out beyond the spares are missing.

    Args:
        failed_s: moments of the failures, ascending.
        repair_s: how long each node is out.
    """
    waits = []
    out: list[float] = []
    for moment, repair in zip(failed_s, repair_s, strict=True):
        while out and out[0] <= moment:
            heapq.heappop(out)
        heapq.heappush(out, moment + repair)
        missing = len(out) - spares
        waits.append(heapq.nsmallest(missing, out)[-1] - moment if missing > 0 else 0.0)
    return waits

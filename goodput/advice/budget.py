"""How many minutes a failure may cost if a run is to reach a target, and what it costs now.

    budget(history, target=0.95).allowed_s

A run that fails every M of wall time and is to be productive for the share G may lose (1 - G) M a failure in all
(FIELD B4): noticing, waiting, starting, loading, work done again, and its part of saves and pauses.
"""

from dataclasses import asdict, dataclass
from typing import Any

from goodput.advice.run_history import PARTS, RunHistory
from goodput.formulas.ettr import minutes_allowed
from goodput.formulas.failure_rates import interval, mean_interval

FORMULA = "(1 - G) / (N r): wall time between failures, times the share that may be lost"
SOURCE = "FIELD B4; r with the exact Poisson interval (Garwood 1936), what is spent by drawing the stops again"
# Sizes that the budget is told for beside the run's own, in nodes of eight GPUs.
SCALES = (128, 1_250, 2_048, 12_500)


@dataclass(frozen=True, slots=True)
class FailureBudget:
    """Seconds a failure: allowed (with the interval of the rate), and spent (by part, with an interval)."""

    run: str
    target: float
    nodes: int
    failures: int
    node_days: float
    rate_per_node_day: float
    rate_low: float
    rate_high: float
    allowed_s: float
    allowed_low_s: float
    allowed_high_s: float | None
    spent_s: float
    spent_low_s: float | None
    spent_high_s: float | None
    parts_s: dict[str, float]
    at_scale: list[dict[str, float]]
    formula: str = FORMULA
    source: str = SOURCE

    @property
    def met(self) -> bool:
        """Whether the run spends no more than the target allows."""
        return self.spent_s <= self.allowed_s

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "met": self.met}


def budget(history: RunHistory, target: float) -> FailureBudget:
    """What the target allows a failure at this scale, against what a failure costs.

    Raises:
        ValueError: the target is not within 0 and 1, or the run was never interrupted.
    """
    count = len(history.stops)
    if not count:
        raise ValueError(f"run {history.run!r} was never interrupted: nothing tells what a failure costs it")
    rate = count / history.node_days
    low, high = (mean / history.node_days for mean in interval(count))
    parts = {"lost_work": sum(stop.lost_s for stop in history.stops) / count}
    parts |= {part: history.mean(part) for part in PARTS}
    parts["checkpoint_save"] = history.saving_s / count
    spent = (history.wall_s - history.productive_s) / count
    parts["other"] = max(0.0, spent - sum(parts.values()))
    sure = mean_interval([stop.lost_s + stop.back_s for stop in history.stops])
    fixed = parts["checkpoint_save"] + parts["other"]

    def allowed(per_node_day: float, nodes: int = history.nodes) -> float:
        return 60 * minutes_allowed(target, nodes, per_node_day)

    return FailureBudget(
        run=history.run,
        target=target,
        nodes=history.nodes,
        failures=count,
        node_days=history.node_days,
        rate_per_node_day=rate,
        rate_low=low,
        rate_high=high,
        allowed_s=allowed(rate),
        allowed_low_s=allowed(high),
        allowed_high_s=allowed(low) if low else None,
        spent_s=spent,
        spent_low_s=None if sure is None else sure[0] + fixed,
        spent_high_s=None if sure is None else sure[1] + fixed,
        parts_s=parts,
        at_scale=[
            {"nodes": nodes, "allowed_s": allowed(rate, nodes), "low_s": allowed(high, nodes)}
            for nodes in sorted({*SCALES, history.nodes})
        ],
    )

"""What a backtest's scores are worth: cost, policies replayed, and, of a simulated cluster, what could be known."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from predictor.backtest import Backtest
from predictor.cost import CostSettings, cost
from predictor.leakage import doubts
from predictor.truth import against_truth, read_truth
from predictor.what_if import Policy, replay


@dataclass(frozen=True, slots=True)
class Worth:
    """What is asked beyond the figures.

    Attributes:
        policies: replayed over the past; none takes the default one.
        truth: the folder that `foreshock simulate` wrote beside the archive.
    """

    cost: CostSettings = field(default_factory=CostSettings)
    policies: tuple[Policy, ...] = ()
    truth: Path | None = None


def with_worth(found: Backtest, worth: Worth) -> Backtest:
    """The same backtest with `cost`, `what_if` and `truth` (null where none was given) in its report.

    Raises:
        TruthError: the truth cannot be read.
    """
    known = found.judged.known
    seen = found.judged.only(known)
    truth = None if worth.truth is None else against_truth(seen, read_truth(worth.truth, found.nodes), found.report)
    oracle = truth["oracle"] if truth else None
    added: dict[str, Any] = {
        "cost": cost(seen, worth.cost),
        "what_if": [_replayed(found, policy, worth.cost) for policy in worth.policies or (Policy(),)],
        "truth": truth,
        "doubts": found.report["doubts"] + doubts(None, oracle["average_precision_ratio"] if oracle else None),
    }
    return replace(found, report=found.report | added)


def _replayed(found: Backtest, policy: Policy, settings: CostSettings) -> dict[str, Any]:
    """A policy under every ranking; a threshold means nothing to rankings that are no probabilities."""
    known = found.judged.known
    seen = found.judged.only(known)
    rankings = {"model": replay(seen, policy, settings)}
    if policy.threshold is None:
        for name, rank in found.ranks.items():
            rankings[name] = replay(replace(seen, scores=rank[known]), policy, settings)
    return {"policy": str(policy), "rankings": rankings}

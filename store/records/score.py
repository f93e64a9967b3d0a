"""A score: the probability of an unplanned outage of a node within a horizon, as of a moment, with its reasons."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

# gbt: trees over all features. hazard: what each sign adds, as other clusters taught and, mostly, as local outages do.
# blend: the mean of both. history, rules: the baselines, which serve where none of these beats them. prior: what other
# clusters taught, before there is enough to learn from here.
ModelKind: TypeAlias = Literal["gbt", "hazard", "blend", "history", "rules", "prior"]
# champion: its scores are served. challenger: it scores beside, unseen, until it is judged. retired: was champion.
# rejected: was a challenger and did not show itself better.
ModelRole: TypeAlias = Literal["champion", "challenger", "retired", "rejected"]


@dataclass(frozen=True, slots=True)
class Reason:
    """What moved a score: in an operator's words, by how much (probability), and the events behind it."""

    text: str
    contribution: float
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """Probability of an unplanned outage of `node` in (time, time + horizon_h]."""

    node: str
    time: datetime
    horizon_h: int
    score: float
    reasons: tuple[Reason, ...]
    model: str


def at_least_one(scores: Iterable[float]) -> float:
    """The probability that at least one of some nodes fails, where each does so by itself."""
    return 1.0 - math.prod(1.0 - score for score in scores)

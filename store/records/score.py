"""A score: the probability of an unplanned outage of a node within a horizon, as of a moment, with its reasons."""

from dataclasses import dataclass
from datetime import datetime


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

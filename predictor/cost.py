"""What acting on the scores saves and costs, in GPU-hours, for a job of a given size (FIELD C).

One failure costs the job `job_gpus * (mtt_checkpoint_h + restart_h)`: the work since its last checkpoint, and the
restart. One action (the node is left out of the next allocation) costs `node_gpus * action_h`. Acting pays where

    precision > cost of an action / (cost of a failure * share averted)        the break-even precision

10,000 GPUs, a quarter of an hour and 2.2 h of an 8-GPU node make 0.7 %; 1,024 GPUs make 6.9 %.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from predictor.evaluation import Judged, ratio
from predictor.history import Bools, Floats, Ints

# The shares of rows at which the curve is told.
SHARES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class CostSettings:
    """Whom a failure strikes, and what acting takes.

    Attributes:
        mtt_checkpoint_h: the mean work lost since the last checkpoint: half the interval.
        action_h: node-hours lost to one action; 2.2 h is FIELD C's soft cordon.
        averted: the share of the failures acted on that the action averts; nobody has measured it.
    """

    job_gpus: int = 1024
    mtt_checkpoint_h: float = 0.15
    restart_h: float = 0.10
    node_gpus: int = 8
    action_h: float = 2.2
    averted: float = 1.0

    @property
    def failure_gpu_h(self) -> float:
        """What one failure costs."""
        return self.job_gpus * (self.mtt_checkpoint_h + self.restart_h)

    @property
    def action_gpu_h(self) -> float:
        """What one action costs."""
        return self.node_gpus * self.action_h

    @property
    def break_even(self) -> float | None:
        """The precision from which acting pays; None where averting a failure saves nothing."""
        return ratio(self.action_gpu_h, self.failure_gpu_h * self.averted)


@dataclass(frozen=True, slots=True)
class _Flagged:
    """Known rows by score, best first, and at each row: how many failures the rows down to it have met."""

    scores: Floats
    caught: Ints
    last_of_tie: Bools


def cost(judged: Judged, settings: CostSettings) -> dict[str, Any]:
    """The figures of `settings`, the best threshold in hindsight, that of the break-even precision, and the curve.

    Every row at or above a threshold is one action; an outage that several rows foresee is averted once.

    Args:
        judged: known rows alone.
    """
    found = _by_score(judged)
    ends = np.flatnonzero(found.last_of_tie)
    saved = found.caught[ends] * settings.failure_gpu_h * settings.averted
    net = saved - (ends + 1) * settings.action_gpu_h
    best = int(np.argmax(net)) if len(net) else 0
    shares = np.minimum(np.searchsorted(ends, np.ceil(np.array(SHARES) * len(found.scores)) - 1), len(ends) - 1)
    even = settings.break_even
    paying = int(np.searchsorted(-found.scores[ends], -even, side="right")) if even is not None and len(ends) else 0
    return {
        **asdict(settings),
        "failure_gpu_h": settings.failure_gpu_h,
        "action_gpu_h": settings.action_gpu_h,
        "break_even_precision": even,
        "lost_without_acting_gpu_h": float(found.caught[-1] * settings.failure_gpu_h) if len(ends) else 0.0,
        "best": _point(found, int(ends[best]), settings) if len(ends) and net[best] > 0 else None,
        "at_break_even": _point(found, int(ends[paying - 1]), settings) if paying else None,
        "curve": [_point(found, int(ends[i]), settings) for i in np.unique(shares)] if len(ends) else [],
    }


def _by_score(judged: Judged) -> _Flagged:
    order = np.argsort(-judged.scores, kind="stable")
    score = judged.scores[order]
    hit = np.flatnonzero(judged.labels.positive[order])
    rows = order[hit]
    outage = np.stack([judged.node[rows].astype(np.float64), judged.labels.next_start_ms[rows]])
    _, first = np.unique(outage, axis=1, return_index=True)
    new = np.zeros(len(order), dtype=np.int64)
    new[hit[first]] = 1
    return _Flagged(score, np.cumsum(new), np.concatenate([score[1:] != score[:-1], [True]])[: len(score)])


def _point(found: _Flagged, end: int, settings: CostSettings) -> dict[str, Any]:
    """What a threshold at the score of the row at `end` brings."""
    actions, caught = end + 1, int(found.caught[end])
    saved, spent = caught * settings.failure_gpu_h * settings.averted, actions * settings.action_gpu_h
    return {
        "threshold": float(found.scores[end]),
        "actions": actions,
        "failures_met": caught,
        "precision": ratio(caught, actions),
        "saved_gpu_h": saved,
        "spent_gpu_h": spent,
        "net_gpu_h": saved - spent,
    }

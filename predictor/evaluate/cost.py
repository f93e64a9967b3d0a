"""What acting on the scores saves and costs, in GPU-hours, for a job of a given size (FIELD C).

One failure costs the job `job_gpus * (mtt_checkpoint_h + restart_h)`: the work since its last checkpoint, and the
restart. One action (the node is left out of the next allocation) costs `node_gpus * action_h`. Acting pays where

    precision > cost of an action / (cost of a failure * share averted)        the break-even precision

10,000 GPUs, a quarter of an hour and 2.2 h of an 8-GPU node make 0.7 %; 1,024 GPUs make 6.9 %.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from predictor.dataset.labels import BLACKOUT_MS
from predictor.history.arrays import DAY_MS, HOUR_MS, Bools, Floats, Ints
from predictor.model.skill import Judged, ratio

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


# A policy replayed over the judged past: what would have been avoided, and what it would have cost.
#
# At each judged moment the riskiest nodes are cordoned, each for `hold_h`; flagged again, a cordon is prolonged.
# Assumed: a job that fails on a node would not have run there while the node was held, so that an outage which begins
# within a hold is a failure avoided; what is held and does not fail is wasted. The rest of history stays as it was.

SEED = 20_250_301
# Longer than any time in ms until the year 2100: node and time as one number.
_NODE_SPAN_MS = 2**42
POLICY_HELP = "top=1%|threshold=0.02, hold_h=24, budget=5%"


class PolicyError(ValueError):
    """A policy that cannot be read; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """Which nodes are held, for how long, and how many at once at most.

    Attributes:
        top: the share of the nodes at risk that is flagged at each moment (rounded up).
        threshold: the score from which a node is flagged instead; None goes by `top`.
        budget: the share of the nodes at risk that may be held at once (rounded down).
    """

    top: float = 0.01
    threshold: float | None = None
    hold_h: float = 24.0
    budget: float = 0.05

    def __str__(self) -> str:
        """As it is written on the command line."""
        chosen = f"top={100 * self.top:g}%" if self.threshold is None else f"threshold={self.threshold:g}"
        return f"{chosen},hold_h={self.hold_h:g},budget={100 * self.budget:g}%"


def parse_policy(text: str) -> HoldPolicy:
    """A policy from `top=1%,hold_h=24,budget=5%`; what is not said is as in `Policy`.

    Raises:
        PolicyError: a part is unknown, no number, or out of its range.
    """
    given: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in ("top", "threshold", "hold_h", "budget"):
            raise PolicyError(f"{part!r} is no part of a policy: write {POLICY_HELP}")
        try:
            given[name] = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError as error:
            raise PolicyError(f"{part!r} is no number: write {POLICY_HELP}") from error
        if not 0 < given[name] <= (24 * 365 if name == "hold_h" else 1):
            raise PolicyError(f"{part!r} is out of range: shares lie in (0, 1], hold_h in (0, 8760]")
    if {"top", "threshold"} <= set(given):
        raise PolicyError("a policy flags by `top` or by `threshold`, not by both")
    return HoldPolicy(**given)


@dataclass(frozen=True, slots=True)
class _Holds:
    """Cordons in order of their begin; `until_ms` grows while they are prolonged."""

    node: Ints
    since_ms: Ints
    until_ms: Ints


def simulate_holds(judged: Judged, policy: HoldPolicy, settings: CostSettings) -> dict[str, Any]:
    """Failures avoided, cordons, node-hours held and wasted, and the GPU-hours that makes for a job.

    Args:
        judged: known rows alone; outages are those which these rows foresee or miss.
    """
    holds, refused, most = _hold(judged, policy)
    outage_node, outage_ms = _outages(judged)
    owner = _owner(holds, outage_node, outage_ms)
    avoided = owner >= 0
    ends = holds.until_ms.astype(np.float64)
    # A hold ends when its node goes out: it cannot be held from what it does not run.
    np.minimum.at(ends, owner[avoided], outage_ms[avoided])
    held_h = (ends - holds.since_ms) / HOUR_MS
    right = np.zeros(len(ends), dtype=np.bool_)
    right[owner[avoided]] = True
    count = int(avoided.sum())
    saved = count * settings.failure_gpu_h
    return {
        "outages": len(outage_ms),
        "failures_avoided": count,
        "share_avoided": ratio(count, len(outage_ms)),
        "cordons": len(ends),
        "cordons_per_day": ratio(len(ends), _days(judged)),
        "share_of_cordons_right": ratio(int(right.sum()), len(ends)),
        "refused_by_budget": refused,
        "most_held_at_once": most,
        "node_hours_held": float(held_h.sum()),
        "node_hours_wasted": float(held_h[~right].sum()),
        "saved_gpu_h": saved,
        "spent_gpu_h": float(held_h.sum()) * settings.node_gpus,
        "net_gpu_h": saved - float(held_h.sum()) * settings.node_gpus,
    }


def _days(judged: Judged) -> float:
    """The days that the moments speak for: the last one as long as those before it."""
    moments = np.unique(judged.time_ms)
    if len(moments) < 2:
        return float(len(moments))
    return float(moments[-1] - moments[0]) / DAY_MS * len(moments) / (len(moments) - 1)


def _hold(judged: Judged, policy: HoldPolicy) -> tuple[_Holds, int, int]:
    """The cordons, how many wishes the budget refused, and the most nodes held at once."""
    held_until = np.full(int(judged.node.max(initial=-1)) + 1, -1, dtype=np.int64)
    current = np.full(len(held_until), -1, dtype=np.int64)
    found: list[tuple[int, int]] = []
    until: list[int] = []
    refused = most = 0
    # Equal scores have an order that favours nobody and is the same every time.
    lot = np.random.default_rng(SEED).random(len(judged.scores))
    order = np.lexsort((lot, -judged.scores, judged.time_ms))
    begins = np.flatnonzero(np.diff(judged.time_ms[order], prepend=-1))
    for rows in np.split(order, begins[1:]) if len(order) else []:
        moment = int(judged.time_ms[rows[0]])
        nodes = judged.node[rows]
        wanted = nodes[_flagged(judged.scores[rows], policy)]
        free = int(policy.budget * len(rows)) - int((held_until[nodes] > moment).sum())
        for node in wanted.tolist():
            if held_until[node] <= moment:
                if free <= 0:
                    refused += 1
                    continue
                free -= 1
            if held_until[node] < moment:
                current[node] = len(found)
                found.append((node, moment))
                until.append(0)
            held_until[node] = until[current[node]] = moment + int(policy.hold_h * HOUR_MS)
        most = max(most, int((held_until[nodes] > moment).sum()))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return _Holds(pairs[:, 0], pairs[:, 1], np.array(until, dtype=np.int64)), refused, most


def _flagged(scores: Floats, policy: HoldPolicy) -> Bools:
    """Which rows of a moment, best first, the policy wishes to hold."""
    if policy.threshold is not None:
        by_score: Bools = scores >= policy.threshold
        return by_score
    by_place: Bools = np.arange(len(scores)) < np.ceil(policy.top * len(scores))
    return by_place


def _outages(judged: Judged) -> tuple[Ints, Floats]:
    """The distinct outages of the positive rows: node and start."""
    hit = judged.labels.positive
    pairs = np.unique(np.stack([judged.node[hit].astype(np.float64), judged.labels.next_start_ms[hit]]), axis=1)
    return pairs[0].astype(np.int64), pairs[1]


def _owner(holds: _Holds, node: Ints, start_ms: Floats) -> Ints:
    """The hold that each outage falls into, -1 for none: the node's last one that began a blackout before."""
    owner = np.full(len(node), -1, dtype=np.int64)
    if not len(holds.node):
        return owner
    order = np.lexsort((holds.since_ms, holds.node))
    keys = holds.node[order] * _NODE_SPAN_MS + holds.since_ms[order]
    place = np.searchsorted(keys, node * _NODE_SPAN_MS + start_ms.astype(np.int64) - BLACKOUT_MS, side="left") - 1
    last = order[np.maximum(place, 0)]
    within = (place >= 0) & (holds.node[last] == node) & (start_ms <= holds.until_ms[last])
    owner[within] = last[within]
    return owner

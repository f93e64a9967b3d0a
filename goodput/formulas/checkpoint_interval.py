"""When other ways to save pay: in the background (asynchronous), or to memory with a copy on disk now and then.

    in_background(save_s=60.0, write_s=60.0, restart_s=600.0, mttf_s=10_800.0).break_even_stall_s
    two_levels(save_s=60.0, share=0.9, restart_s=600.0, mttf_s=10_800.0).break_even_stall_s

A save in the background stalls w' and is safe `write_s` later: the same form as any, with the writing added to the way
back (`expected_goodput`). It pays below the stall at which both are worth the same, each at its best interval;
to first order (sqrt(w) - write / sqrt(2 M))^2.
Two levels, to first order: memory saves (stall m) serve the share f of the failures, disk saves (stall w) the others.
Their best intervals do not depend on each other, sqrt(2 m M / f) and sqrt(2 w M / (1 - f)); both together lose
sqrt(2 m f / M) + sqrt(2 w (1 - f) / M), less than disk alone if m < w (1 - sqrt(1 - f))^2 / f.
Sources: Vaidya 1995 and Di et al. 2014 (two-level checkpointing); stalls: FIELD B3 (PyTorch DCP, ByteRobust).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

# The checkpoint interval that loses least, and the goodput that an interval brings, under memoryless failures.
#
#     optimum_s(save_s=60.0, mttf_s=10_800.0)              # 1098.8
#     expected_goodput(1098.8, 60.0, 600.0, 10_800.0)      # 0.850
#
# Time to failure M = 1 / L, interval of work D, stall of a save w, way back R. Sources: Young, CACM 17(9), 1974 (first
# order); Daly, FGCS 22(3), 2006 (higher order, and the exact time L D / (exp(L R) (exp(L (D + w)) - 1))). The exact
# optimum solves 1 - L D = exp(-L (D + w)): the derivative of that form set to zero.

_TOO_FAR = 700.0  # beyond a float's range: nothing is ever finished
_STEPS = 60


def young_s(save_s: float, mttf_s: float) -> float:
    """Young's first-order interval, seconds: sqrt(2 w M)."""
    return math.sqrt(2 * save_s * mttf_s)


def daly_s(save_s: float, mttf_s: float) -> float:
    """Daly's higher-order interval, seconds: sqrt(2 w M) (1 + sqrt(w / 2M) / 3 + w / 18M) - w; M from w = 2M on."""
    if save_s >= 2 * mttf_s:
        return mttf_s
    ratio = save_s / (2 * mttf_s)
    return young_s(save_s, mttf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def optimum_s(save_s: float, mttf_s: float) -> float:
    """The interval that is best under memoryless failures, exactly: 0 for saves that cost nothing.

    Raises:
        ValueError: the stall is negative, or the time to failure is not above zero.
    """
    if save_s < 0 or not mttf_s > 0:
        raise ValueError(f"no interval for a stall of {save_s} s and {mttf_s} s between failures")
    stall = save_s / mttf_s
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        share = (low + high) / 2
        # 1 - y - exp(-y - a) without losing digits where y and a are small.
        low, high = (share, high) if -math.expm1(-share - stall) > share else (low, share)
    return high * mttf_s if save_s > 0 else 0.0


def expected_goodput(interval_s: float, save_s: float, restart_s: float, mttf_s: float) -> float:
    """Productive share of wall time (0-1) under memoryless failures, exact.

    A save that is written in the background keeps the work that was done when it was begun. The `write_s` that it takes
    count in `restart_s`: of an uptime X the saves k with k (D + w) + write <= X are kept, so that the kept work is
    D exp(-L write) / (exp(L (D + w)) - 1), which is what as much time to restart costs.
    """
    if interval_s <= 0:
        return 0.0
    exponent, back = (interval_s + save_s) / mttf_s, restart_s / mttf_s
    if exponent + back > _TOO_FAR:
        return 0.0
    return interval_s / mttf_s / (math.exp(back) * math.expm1(exponent))


# Checkpoints with a predictor: how long the interval may grow when a share of the failures is foretold.
#
#     plan(Predictor(recall=0.8, precision=0.4, lead_s=120.0, save_s=30.0), save_s=60.0, mttf_s=10_800.0)
#
# A warning makes the run save at once (stall C_p). Source: Aupy, Robert, Vivien, Zaidouni, "Checkpointing algorithms
# and fault prediction", JPDC 74(2), 2014 (arXiv 1302.3752), windows: arXiv 1207.6936. Recall r, precision p, period T
# (an interval and its save C), time to failure M. A warning at the moment t of its period is worth a save from t = C_p
# / p on: before, the work at risk is less than the save costs. The share of time lost to saves and failures is then
#
#     C / T + ((1 - r) T / 2 + r min(I, T) / 2 + (r / p) C_p (1 - C_p / (2 p T))) / M
#
# (way back left out; I: the window within which the foretold failure comes), least at
# T = sqrt((2 M C - r C_p^2 / p^2) / (1 - r)), or at C_p / p if that is longer. That is Young's interval for the
# effective stall C - r C_p^2 / (2 p^2 M) and the effective time M / (1 - r): the exact optimum of these is advised.

SOURCE = "Aupy, Robert, Vivien, Zaidouni 2014 (arXiv 1302.3752, windows 1207.6936)"
FORMULA = "T = sqrt((2 M C - r Cp^2 / p^2) / (1 - r)); a warning is worth a save from Cp / p into the period on"


@dataclass(frozen=True, slots=True)
class Predictor:
    """What a predictor of failures can do.

    Attributes:
        recall: the share of failures that it foretells (0-1).
        precision: the share of its warnings that come true (0-1).
        lead_s: how long before the failure a warning comes, seconds; None: always long enough for a save.
        save_s: stall of a save upon a warning, seconds; None: as long as any other.
        window_s: the time within which a foretold failure comes, after the lead: 0 for an exact moment.
    """

    recall: float
    precision: float
    lead_s: float | None = None
    save_s: float | None = None
    window_s: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.recall <= 1 and 0 < self.precision <= 1 and self.window_s >= 0):
            raise ValueError("recall lies in [0, 1], precision in (0, 1], and a window is not below zero")

    def in_time(self, save_s: float) -> bool:
        """Whether a warning leaves time for a save, which usually stalls `save_s`; a planned move begins with one."""
        return self.lead_s is None or self.lead_s >= (save_s if self.save_s is None else self.save_s)


@dataclass(frozen=True, slots=True)
class PredictionPlan:
    """Whether to save upon warnings, from when on in a period, how often otherwise, and what it is worth."""

    predictor: Predictor
    use_warnings: bool
    why: str
    interval_s: float
    trust_after_s: float | None
    lost_share: float
    lost_share_without: float
    formula: str = FORMULA
    source: str = SOURCE

    @property
    def gain(self) -> float:
        """Share of wall time (0-1) that the warnings save, to first order."""
        return self.lost_share_without - self.lost_share

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {**asdict(self), "gain": self.gain}


def lost_share(period_s: float, predictor: Predictor, save_s: float, mttf_s: float) -> float:
    """The share of time lost to saves and to work done twice, to first order, when warnings are heeded."""
    r, p = predictor.recall, predictor.precision
    proactive = save_s if predictor.save_s is None else predictor.save_s
    per_failure = (1 - r) * period_s / 2 + r * min(predictor.window_s, period_s) / 2
    if proactive / p <= period_s:
        per_failure += r / p * proactive * (1 - proactive / (2 * p * period_s))
    else:  # no moment of the period is worth the save
        per_failure += r * period_s / 2
    return save_s / period_s + per_failure / mttf_s


def plan(predictor: Predictor, save_s: float, mttf_s: float) -> PredictionPlan:
    """The best interval with the predictor, or without it where its warnings are not worth their saves.

    Raises:
        ValueError: the stall or the time to failure is not above zero.
    """
    if save_s <= 0 or mttf_s <= 0:
        raise ValueError("a plan needs a save stall and a time to failure above zero")
    alone_s = optimum_s(save_s, mttf_s)
    without = lost_share(alone_s + save_s, Predictor(0.0, 1.0), save_s, mttf_s)
    proactive = save_s if predictor.save_s is None else predictor.save_s
    if not predictor.in_time(save_s):
        return PredictionPlan(predictor, False, "a warning comes too late for a save", alone_s, None, without, without)
    with_s = _interval_s(predictor, proactive, save_s, mttf_s)
    lost = lost_share(with_s + save_s, predictor, save_s, mttf_s)
    if lost >= without:
        late = predictor.window_s >= alone_s
        why = "the failure may come later than the next save is due" if late else "the saves cost more than they keep"
        return PredictionPlan(predictor, False, why, alone_s, None, without, without)
    return PredictionPlan(
        predictor, True, "the warnings keep more than they cost", with_s, proactive / predictor.precision, lost, without
    )


def _interval_s(predictor: Predictor, proactive_s: float, save_s: float, mttf_s: float) -> float:
    """The interval when warnings are heeded; never longer than the time between failures."""
    r, wait_s = predictor.recall, proactive_s / predictor.precision
    missed = 1 - r
    effective_save_s = max(0.0, save_s - r * wait_s**2 / (2 * mttf_s))
    best = optimum_s(effective_save_s, mttf_s / missed) if missed > 0 else mttf_s
    # Both forms are of the period, the save within: the effective stall was shorter than the real one.
    period = min(max(best + effective_save_s, wait_s), mttf_s + save_s)
    return max(1.0, period - save_s)


# What such saves stall in production (FIELD B3): PyTorch's asynchronous save, ByteRobust's save of every step.
ASYNC_STALL_S = 0.5
MEMORY_STALL_S = 0.04
_STALL_STEPS = 60


@dataclass(frozen=True, slots=True)
class SaveKind:
    """Another way to save: what it would bring, and up to which stall it pays (None: at no stall)."""

    stall_s: float
    interval_s: float
    goodput: float
    gain: float
    break_even_stall_s: float | None
    pays: bool

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return asdict(self)


def in_background(
    save_s: float, write_s: float, restart_s: float, mttf_s: float, stall_s: float = ASYNC_STALL_S
) -> SaveKind:
    """Saves that stall `stall_s` and are safe `write_s` later, against saves that stall `save_s`; one at a time."""
    now = expected_goodput(optimum_s(save_s, mttf_s), save_s, restart_s, mttf_s)

    def worth(stall: float) -> tuple[float, float]:
        interval = max(optimum_s(stall, mttf_s), write_s)
        return interval, expected_goodput(interval, stall, restart_s + write_s, mttf_s)

    low, high = 0.0, save_s
    for _ in range(_STALL_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle)[1] > now else (low, middle)
    interval, goodput = worth(stall_s)
    return SaveKind(stall_s, interval, goodput, goodput - now, low if worth(low)[1] > now else None, goodput > now)


def two_levels(
    save_s: float, share: float, restart_s: float, mttf_s: float, stall_s: float = MEMORY_STALL_S
) -> SaveKind:
    """Saves to memory that outlive the share of the failures, with disk saves for the others.

    `interval_s` is that of the memory saves. Gain and break-even are of the first order.

    Raises:
        ValueError: the share is not within 0 and 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share} of the failures is none: it lies within 0 and 1")
    now = expected_goodput(optimum_s(save_s, mttf_s), save_s, restart_s, mttf_s)
    lost_now = math.sqrt(2 * save_s / mttf_s)
    lost = math.sqrt(2 * stall_s * share / mttf_s) + math.sqrt(2 * save_s * (1 - share) / mttf_s)
    interval = math.sqrt(2 * stall_s * mttf_s / share) if share else math.inf
    gain = min(lost_now - lost, 1 - now)
    limit = save_s * (1 - math.sqrt(1 - share)) ** 2 / share if share else None
    return SaveKind(stall_s, min(interval, mttf_s), now + gain, gain, limit, limit is not None and stall_s < limit)


@dataclass(frozen=True, slots=True)
class Aims:
    """What the changes would reach. Seconds. The defaults are published (FIELD B3 and C).

    Attributes:
        detection_s: a hang seen by its silent collective rather than by a timeout.
        restart_s: startup and load without a new job (HyperPod: 1 min 45 s).
        worst: how many nodes are taken out.
    """

    detection_s: float = 60.0
    restart_s: float = 105.0
    async_stall_s: float = ASYNC_STALL_S
    worst: int = 5

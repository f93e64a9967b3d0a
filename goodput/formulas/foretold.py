"""Checkpoints with a predictor: how long the interval may grow when a share of the failures is foretold.

    plan(Predictor(recall=0.8, precision=0.4, lead_s=120.0, save_s=30.0), save_s=60.0, mttf_s=10_800.0)

A warning makes the run save at once (stall C_p). Source: Aupy, Robert, Vivien, Zaidouni, "Checkpointing algorithms and
fault prediction", JPDC 74(2), 2014 (arXiv 1302.3752), windows: arXiv 1207.6936. Recall r, precision p, period T (an
interval and its save C), time to failure M. A warning at the moment t of its period is worth a save from t = C_p / p
on: before, the work at risk is less than the save costs. The share of time lost to saves and failures is then

    C / T + ((1 - r) T / 2 + r min(I, T) / 2 + (r / p) C_p (1 - C_p / (2 p T))) / M

(way back left out; I: the window within which the foretold failure comes), least at
T = sqrt((2 M C - r C_p^2 / p^2) / (1 - r)), or at C_p / p if that is longer. That is Young's interval for the effective
stall C - r C_p^2 / (2 p^2 M) and the effective time M / (1 - r): the exact optimum of these is advised.
"""

from dataclasses import asdict, dataclass
from typing import Any

from goodput.formulas.young_daly import optimum_s

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
class Plan:
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


def plan(predictor: Predictor, save_s: float, mttf_s: float) -> Plan:
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
        return Plan(predictor, False, "a warning comes too late for a save", alone_s, None, without, without)
    with_s = _interval_s(predictor, proactive, save_s, mttf_s)
    lost = lost_share(with_s + save_s, predictor, save_s, mttf_s)
    if lost >= without:
        late = predictor.window_s >= alone_s
        why = "the failure may come later than the next save is due" if late else "the saves cost more than they keep"
        return Plan(predictor, False, why, alone_s, None, without, without)
    return Plan(
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

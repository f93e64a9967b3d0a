"""One run simulated: failures strike by the clock, the run works, saves, goes back to its last save. Formulas are held
against it.

    policy = Policy(interval_s=1800.0, save_s=60.0, restart_s=600.0)
    run = simulate(policy, exponential(10_800.0, 100_000, seed=1))
    run.goodput, run.half_width

Failures come whatever the run does: one that strikes on the way back makes it begin anew. Between two failures a run
that came back after `back` works in periods of D + w; what was saved and safe counts, the rest is done again.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
# Two standard errors, roughly: what the mean of a simulation may be off by.
_SIGMAS = 1.96


@dataclass(frozen=True, slots=True)
class Policy:
    """How a run saves and comes back. Seconds.

    Attributes:
        interval_s: work between two saves.
        save_s: stall of a save.
        write_s: how long after its stall a save in the background is safe (0: at once).
        detection_s, restart_s: from the failure to the stop of the job; from there to the next iteration.
    """

    interval_s: float
    save_s: float
    restart_s: float
    write_s: float = 0.0
    detection_s: float = 0.0

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or min(self.save_s, self.restart_s, self.write_s, self.detection_s) < 0:
            raise ValueError("a policy needs an interval above zero, and no time below zero")


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Shares of wall time (0-1), which sum to 1; `half_width` of the goodput's 95 % interval."""

    goodput: float
    saving: float
    lost: float
    back: float
    failures: int
    half_width: float


def exponential(mttf_s: float, failures: int, seed: int) -> Floats:
    """Times between failures of a run whose failures have no memory."""
    return np.random.default_rng(seed).exponential(mttf_s, failures)


def weibull(mttf_s: float, shape: float, failures: int, seed: int) -> Floats:
    """Times between failures that come in bursts (shape < 1) or evenly (> 1), with the same mean."""
    from math import gamma

    return np.random.default_rng(seed).weibull(shape, failures) * (mttf_s / gamma(1 + 1 / shape))


def simulate(policy: Policy, gaps_s: Floats, extra_back_s: Floats | None = None) -> SimulatedRun:
    """The run over stretches from one failure to the next, each beginning with the way back.

    Args:
        gaps_s: the length of each stretch.
        extra_back_s: what the way back of each stretch takes beside the policy's own (waits for nodes).

    Raises:
        ValueError: there is no stretch.
    """
    if not len(gaps_s):
        raise ValueError("a simulation needs at least one failure")
    back, saves = _stretches(policy, gaps_s, 0.0 if extra_back_s is None else extra_back_s)
    kept, stalled = saves * policy.interval_s, saves * policy.save_s
    wall = float(gaps_s.sum())
    goodput = float(kept.sum()) / wall
    # Of a ratio of two sums over independent stretches (delta method).
    spread = np.sqrt(float(((kept - goodput * gaps_s) ** 2).sum())) / wall
    saving, way_back = float(stalled.sum()) / wall, float(back.sum()) / wall
    return SimulatedRun(
        goodput=goodput,
        saving=saving,
        lost=1 - goodput - saving - way_back,
        back=way_back,
        failures=len(gaps_s),
        half_width=_SIGMAS * float(spread),
    )


def _stretches(policy: Policy, gaps_s: Floats, extra_s: Floats | float) -> tuple[Floats, Floats]:
    """Of each stretch the time on the way back (cut by the next failure), and how many saves were safe."""
    back = np.minimum(gaps_s, policy.detection_s + policy.restart_s + extra_s)
    saves: Floats = np.floor((gaps_s - back - policy.write_s) / (policy.interval_s + policy.save_s))
    return back, np.maximum(saves, 0.0)

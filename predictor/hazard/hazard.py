"""An additive hazard: failures an hour, a sum over signs and over classes of failures, learned as gamma and Poisson.

    belief = HazardEvidence.weak(1)                       # or that of the package (`predictor/hazard/prior.py`)
    belief = belief.after(seen)                           # what a site saw; a second
    belief = belief.after(news)                           # what the day brought: the same arithmetic, nothing again
    belief.rates()                                        # (classes, signs), failures per node-hour per unit of sign

Discrete time: a row is a node that was in service from its moment on, for so many hours, until its outage or until it
was no longer watched (right censoring). Its hazard of class c is sum_k beta[c, k] * sign[k], each beta gamma
with a shape (failures seen) and an exposure (unit-hours watched). Of a failure the signs take shares by what they
added; all shares are 1 together, and that is the update: shape + shares, exposure + unit-hours. The shares depend on
the rates, so that both are found in turns: mean-field variational Bayes of a sum of Poisson sources (Cemgil 2009,
"Bayesian Inference for Nonnegative Matrix Factorisation Models", section 3.2). Classes compete: each has its own rates,
the hazards add up, and one that failed by another class was at risk of this one until then.
"""

from dataclasses import dataclass, replace

import numpy as np

from predictor.hazard.signs import SIGNS
from predictor.history.arrays import Floats, Ints

# Rates without anything known: failures per node-hour (FIELD D7: 3.8 per 1000 node-days), and how little that counts.
USUAL_RATE = 3.8e-3 / 24
WEAK_SHAPE = 0.3
_TURNS = 200
_STILL = 1e-5


@dataclass(frozen=True, slots=True)
class HazardHours:
    """Rows of time at risk.

    Attributes:
        signs: (signs, rows), each >= 0.
        hours: how long each row was watched, times how many rows it stands for.
        failed: how much of a failure each row ended with: 1, a share where several rows speak of it, 0.
        classes: the class of the failure; any number where there was none.
    """

    signs: Floats
    hours: Floats
    failed: Floats
    classes: Ints


@dataclass(frozen=True, slots=True)
class HazardEvidence:
    """What is known of each rate: gamma with `shape` failures in `exposure` unit-hours, (classes, signs) both."""

    shape: Floats
    exposure: Floats

    @classmethod
    def weak(cls, classes: int, rate: float = USUAL_RATE) -> "HazardEvidence":
        """Nearly nothing: every sign may add about as much as the base."""
        shape = np.full((classes, len(SIGNS)), WEAK_SHAPE)
        return cls(shape, shape / (rate / classes))

    def rates(self) -> Floats:
        """The mean of each rate: failures per node-hour per unit of sign."""
        return self.shape / self.exposure

    def after(self, seen: HazardHours) -> "HazardEvidence":
        """What is known once more was seen."""
        exposure = self.exposure + np.array([(sign * seen.hours).sum() for sign in seen.signs])
        shape = self.shape.copy()
        for number in range(len(shape)):
            at = (seen.failed > 0) & (seen.classes == number)
            if at.any():
                shape[number] += _shares(self.shape[number], exposure[number], seen.signs[:, at], seen.failed[at])
        return replace(self, shape=shape, exposure=exposure)

    def local_share(self, origin: "HazardEvidence") -> float:
        """How much of the failures behind the rates came since an earlier belief, 0 to 1."""
        whole = float(self.shape.sum())
        return float((self.shape - origin.shape).sum()) / whole if whole > 0 else 0.0


def _shares(prior: Floats, exposure: Floats, signs: Floats, failed: Floats) -> Floats:
    """How many of some failures each sign takes, (signs,): together as many as there were."""
    from scipy.special import digamma  # type: ignore[import-untyped]

    shape = prior + failed.sum() / len(prior)
    taken: Floats = shape - prior
    for _ in range(_TURNS):
        # exp(E[log rate]) and not its mean: that is what the bound asks for.
        added = (np.exp(digamma(shape)) / exposure)[:, None] * signs
        now: Floats = (added / added.sum(axis=0) * failed).sum(axis=1)
        if np.abs(now - taken).max() < _STILL * max(failed.sum(), 1.0):
            return now
        taken, shape = now, prior + now
    return taken


def per_hour(rates: Floats, signs: Floats) -> Floats:
    """The hazard of each row, failures per node-hour: parts are added in the order of the signs, row by row.

    No matrix product: its sums depend on how many rows it is asked at once.
    """
    found = np.zeros(signs.shape[1])
    for rate, sign in zip(rates.sum(axis=0).tolist(), signs, strict=True):
        if rate > 0:
            found += rate * sign
    return found


def probability_within(hazard: Floats, hours: float) -> Floats:
    """The chance of a failure: 1 - exp(-hazard * hours)."""
    return -np.expm1(-hazard * hours)

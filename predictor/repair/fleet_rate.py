"""How sure one node is worse than its fleet: counts against an empirical-Bayes prior of the nodes' rates.

    excess(counts=[0, 1, 6], exposure=[28, 28, 28], times=4.0).probability    # -> near 0, below 0.9, near 1

Each node's count is Poisson. The nodes' rates, as multiples of the fleet's mean, are spread by a gamma of mean 1, whose
shape the counts themselves tell (FIELD D6: about 0.12 where a few nodes fail again and again, large where all are
alike), and a few stand apart, anywhere above `times`: how few, the counts tell too (FIELD D6: 1.2 % in one fleet). The
uncertainty of both is averaged over, so that a small or quiet fleet makes nobody sure, and thousands of alike nodes no
lemon: no threshold has to be set for a cluster.
"""

import math
from dataclasses import dataclass

import numpy as np

from predictor.history.arrays import Floats, Ints

# Candidates of the gamma's shape, and what is believed of it beforehand: around FIELD D6, wide.
_SHAPES = np.geomspace(0.04, 100.0, 24)
_SHAPE_PRIOR = np.exp(-0.5 * (np.log(_SHAPES / 0.2) / 1.5) ** 2)
# Candidates of the share of nodes that stand apart; each power of ten is believed as much as another.
_OUTLIER_SHARES = np.geomspace(1e-4, 0.05, 10)
# They fail up to so many times more than the least of them.
_OUTLIER_SPAN = 25.0
# Rates as multiples of the fleet's mean, for the posterior's integral.
_MULTIPLES = np.geomspace(1e-3, 1e4, 700)
# Exposures are rounded to this share of their mean: alike nodes are then computed once.
_EXPOSURE_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Excess:
    """What the fleet is, and each node in it (arrays with one entry a node; NaN where nothing is known of one).

    Attributes:
        mean: the fleet's count per unit of exposure.
        shape: the gamma's shape that the counts speak for most.
        expected: the count of a node like the fleet's mean.
        probability: that the node's own rate is at least the asked multiple of the mean.
        multiple: the node's own rate as a multiple of the mean, as it is believed now.
    """

    mean: float
    shape: float
    expected: Floats
    probability: Floats
    multiple: Floats


def excess(counts: Ints, exposure: Floats, times: float) -> Excess:
    """Judge every node's count. Nodes without exposure count for nothing and get NaN."""
    watched = exposure > 0
    total = float(exposure[watched].sum())
    mean = float(counts[watched].sum()) / total if total > 0 else 0.0
    nothing = np.full(len(counts), np.nan)
    if mean <= 0:
        return Excess(0.0, math.nan, np.where(watched, 0.0, np.nan), np.where(watched, 0.0, np.nan), nothing)
    step = _EXPOSURE_STEP * total / watched.sum()
    pairs = np.stack([counts[watched], np.maximum(np.round(exposure[watched] / step), 1.0)], axis=1)
    kinds, kind_of, alike = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    count, expected = kinds[:, 0], kinds[:, 1] * step * mean
    gamma = np.array([_gamma_likelihood(shape, count, expected) for shape in _SHAPES])
    apart = _outlier_likelihood(count, expected, times)
    # (shapes, shares, kinds of node): how likely each count is under each candidate.
    likelihood = (1.0 - _OUTLIER_SHARES)[None, :, None] * gamma[:, None, :] + _OUTLIER_SHARES[None, :, None] * apart
    evidence = np.log(likelihood) @ alike + np.log(_SHAPE_PRIOR)[:, None]
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    stands = (weight[:, :, None] * (_OUTLIER_SHARES[None, :, None] * apart / likelihood)).sum(axis=(0, 1))
    high, multiple = _posterior(count, expected, weight.sum(axis=1), times)
    high, multiple = (
        (1.0 - stands) * high + stands,
        (1.0 - stands) * multiple + stands * _outlier_mean(count, expected, times),
    )
    found = Excess(mean, float(_SHAPES[weight.sum(axis=1).argmax()]), exposure * mean, nothing.copy(), nothing.copy())
    found.probability[watched] = high[kind_of.ravel()]
    found.multiple[watched] = multiple[kind_of.ravel()]
    return found


def _gamma_likelihood(shape: float, count: Floats, expected: Floats) -> Floats:
    """Negative binomial: a Poisson whose rate is gamma distributed; one entry a kind of node."""
    shared = expected / (shape + expected)
    lgamma = np.array([math.lgamma(n + shape) - math.lgamma(shape) - math.lgamma(n + 1.0) for n in count])
    found: Floats = np.exp(lgamma + shape * np.log1p(-shared) + count * np.log(shared))
    return np.maximum(found, 1e-300)


def _outlier_density(count: Floats, expected: Floats, times: float) -> tuple[Floats, Floats]:
    """Multiples of those that stand apart, each as believable as another, and how likely the counts are under each."""
    multiples = np.geomspace(times, times * _OUTLIER_SPAN, 60)
    rate = expected[:, None] * multiples[None, :]
    lgamma = np.array([math.lgamma(n + 1.0) for n in count])
    density: Floats = np.exp(count[:, None] * np.log(rate) - rate - lgamma[:, None])
    return multiples, density


def _outlier_likelihood(count: Floats, expected: Floats, times: float) -> Floats:
    found: Floats = _outlier_density(count, expected, times)[1].mean(axis=1)
    return np.maximum(found, 1e-300)


def _outlier_mean(count: Floats, expected: Floats, times: float) -> Floats:
    """The multiple of a node, should it stand apart."""
    multiples, density = _outlier_density(count, expected, times)
    found: Floats = (density @ multiples) / np.maximum(density.sum(axis=1), 1e-300)
    return found


def _posterior(count: Floats, expected: Floats, weight: Floats, times: float) -> tuple[Floats, Floats]:
    """P(multiple >= times) and the expected multiple, of each kind of node, averaged over the shapes."""
    probability, multiple = np.zeros(len(count)), np.zeros(len(count))
    high = times <= _MULTIPLES
    for shape, share in zip(_SHAPES, weight, strict=True):
        if share < 1e-6:
            continue
        a, b = count + shape, expected + shape
        log_density = a[:, None] * np.log(_MULTIPLES)[None, :] - b[:, None] * _MULTIPLES[None, :]
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        probability += share * density[:, high].sum(axis=1) / density.sum(axis=1)
        multiple += share * a / b
    # Where nothing was counted the grid's lower end would cut the density off: there the answer is no.
    return np.where(count > 0, probability, 0.0), multiple

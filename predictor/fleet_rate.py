"""How sure one node is worse than its fleet: counts against an empirical-Bayes prior of the nodes' rates.

    excess(counts=[0, 1, 6], exposure=[28, 28, 28], times=4.0).probability    # -> near 0, below 0.9, near 1

Each node's count is Poisson; the nodes' rates are spread by a gamma whose mean is the fleet's and whose shape the
counts themselves tell (FIELD D6: about 0.12 where a few nodes fail again and again, large where all are alike). The
uncertainty of the shape is averaged over, so that a small or quiet fleet makes nobody sure. In a fleet of equals the
shape is large and no count of thousands is called bad by chance: no threshold has to be set for a cluster.
"""

import math
from dataclasses import dataclass

import numpy as np

from predictor.history import Floats, Ints

# Candidates of the gamma's shape, and what is believed of it beforehand: around FIELD D6, wide.
_SHAPES = np.geomspace(0.04, 100.0, 24)
_BELIEVED = np.exp(-0.5 * (np.log(_SHAPES / 0.2) / 1.5) ** 2)
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
    evidence = np.array([_log_likelihood(shape, count, expected) @ alike for shape in _SHAPES]) + np.log(_BELIEVED)
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    probability, multiple = _posterior(count, expected, weight, times)
    found = Excess(mean, float(_SHAPES[weight.argmax()]), exposure * mean, nothing.copy(), nothing.copy())
    found.probability[watched] = probability[kind_of.ravel()]
    found.multiple[watched] = multiple[kind_of.ravel()]
    return found


def _log_likelihood(shape: float, count: Floats, expected: Floats) -> Floats:
    """Negative binomial: a Poisson whose rate is gamma distributed; one entry a kind of node."""
    shared = expected / (shape + expected)
    lgamma = np.array([math.lgamma(n + shape) - math.lgamma(shape) - math.lgamma(n + 1.0) for n in count])
    found: Floats = lgamma + shape * np.log1p(-shared) + count * np.log(shared)
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

"""What taking the worst nodes out would be worth: how much more they will fail, not how much more they did.

    excess([3, 1, 1], nodes=64, worst=2)

Nodes that failed most were partly unlucky: counts regress to the mean. Each node's rate is taken as gamma distributed
over the nodes (as FIELD D6 finds it), with the shape k that the counts' variance gives (method of moments). A node with
c failures is then expected to have (c + k) / (1 + k / m) in as much time again, m the mean. Where counts vary no more
than chance allows, k is infinite and no node is worse than another (empirical Bayes; Robbins 1956).
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Counts of rare failures: the exact interval of a rate, and how many to expect at most. Pure arithmetic.

_STEPS = 100  # halvings: far below a float's precision
_FAR = 30.0  # standard deviations: nothing lies beyond
_NOTHING = 1e-18


def mass(count: int, mean: float) -> float:
    """P(X = count) of a Poisson variable."""
    if mean <= 0:
        return float(count == 0)
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def cdf(count: int, mean: float) -> float:
    """P(X <= count) of a Poisson variable."""
    if count < 0:
        return 0.0
    if mean <= 0:
        return 1.0
    if count > mean + _FAR * (math.sqrt(mean) + 1):
        return 1.0
    # From the last term down, until what follows no longer counts: years of outages are tens of thousands.
    term, total, k = mass(count, mean), 0.0, count
    while k >= 0 and (k > mean or term > total * _NOTHING):
        total += term
        term *= k / mean
        k -= 1
    return min(1.0, total)


def interval(count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact (Garwood 1936) two-sided interval of a Poisson mean of which `count` were seen.

    Raises:
        ValueError: the count is negative or the confidence is not between 0 and 1.
    """
    if count < 0 or not 0 < confidence < 1:
        raise ValueError(f"no interval for {count} events at confidence {confidence}")
    tail = (1 - confidence) / 2
    high_end = count + 10 * math.sqrt(count + 1) + 30
    low = 0.0 if count == 0 else _root(lambda mean: 1 - cdf(count - 1, mean) < tail, high_end)
    return low, _root(lambda mean: cdf(count, mean) > tail, high_end)


def _root(below: Callable[[float], bool], high: float) -> float:
    """The point up to which `below` holds."""
    low = 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def binomial_quantile(confidence: float, trials: int, share: float) -> int:
    """The least n with P(X <= n) >= confidence, X of `trials` that each hold with probability `share`.

    Raises:
        ValueError: trials are negative, or a probability is out of range.
    """
    if trials < 0 or not 0 <= share <= 1 or not 0 < confidence < 1:
        raise ValueError(f"no quantile {confidence} of {trials} trials at probability {share}")
    if share == 0 or trials == 0:
        return 0
    if share == 1:
        return trials
    odds = math.log(share) - math.log1p(-share)
    base = trials * math.log1p(-share)
    total = 0.0
    for n in range(trials + 1):
        ways = math.lgamma(trials + 1) - math.lgamma(n + 1) - math.lgamma(trials - n + 1)
        total += math.exp(base + ways + n * odds)
        if total >= confidence:
            return n
    return trials


# How sure a measured figure is: draws of a failure rate, and intervals of means by drawing again.
#
# Everything is seeded: the same records give the same interval.

Floats: TypeAlias = NDArray[np.float64]

DRAWS = 2_000
SEED = 20_250_301
_MOST_ROWS = 1_000  # drawn again as they are: 2 million places


def generator() -> np.random.Generator:
    """A fresh stream of numbers, the same each time."""
    return np.random.default_rng(SEED)


def rate_draws(count: int, exposure: float, dice: np.random.Generator) -> tuple[Floats, Floats]:
    """Draws of a Poisson rate of which `count` were seen over `exposure`: for a lower limit, and for an upper one.

    Their quantiles are Garwood's exact limits: Gamma(n) below, Gamma(n + 1) above (the second is the first and one
    exponential more, so that both move together).
    """
    low = dice.gamma(count, size=DRAWS) if count else np.zeros(DRAWS)
    return low / exposure, (low + dice.exponential(size=DRAWS)) / exposure


def mean_draws(rows: Floats, dice: np.random.Generator) -> Floats:
    """Means of each column over as many rows, drawn again from the measured ones: whole rows, as they hang together.

    Of very many rows the means are drawn from the normal distribution that they then have.
    """
    if len(rows) > _MOST_ROWS:
        spread = np.atleast_2d(np.cov(rows, rowvar=False)) / len(rows)
        return dice.multivariate_normal(rows.mean(axis=0), spread, DRAWS)
    drawn: Floats = rows[dice.integers(0, len(rows), (DRAWS, len(rows)))].mean(axis=1)
    return drawn


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean; None of fewer than two values: nobody knows how they vary."""
    if len(values) < 2:
        return None
    return within(mean_draws(np.asarray(values, dtype=np.float64)[:, None], generator())[:, 0])


def within(draws: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """The limits within which the middle share of the draws lies."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def shape_of(counts: Sequence[int], nodes: int) -> float:
    """The gamma shape of the nodes' rates; infinite where the counts are as even as chance makes them.

    Args:
        counts: failures of the nodes that failed; the others of `nodes` had none.

    Raises:
        ValueError: more nodes failed than there are.
    """
    if nodes < len(counts) or nodes < 1:
        raise ValueError(f"{len(counts)} nodes of {nodes} cannot have failed")
    mean = sum(counts) / nodes
    squares = sum(count**2 for count in counts) / nodes
    variance = (squares - mean**2) * nodes / max(1, nodes - 1)
    return mean**2 / (variance - mean) if variance > mean > 0 else float("inf")


def expected_share(counts: Sequence[int], nodes: int, worst: int) -> float:
    """The share of all failures (0-1) that taking the worst nodes out for average ones will avoid."""
    total, shape = sum(counts), shape_of(counts, nodes)
    if not total or shape == float("inf"):
        return 0.0
    mean = total / nodes
    again = [(count + shape) / (1 + shape / mean) for count in sorted(counts, reverse=True)[:worst]]
    return max(0.0, sum(rate - mean for rate in again) / total)


def share_draws(counts: Sequence[int], nodes: int, worst: int, dice: np.random.Generator) -> Floats:
    """The same share, each worst node's rate drawn from what its count leaves open."""
    total, shape = sum(counts), shape_of(counts, nodes)
    chosen = np.array(sorted(counts, reverse=True)[:worst], dtype=np.float64)
    if not total or shape == float("inf") or not len(chosen):
        return np.zeros(DRAWS)
    mean = total / nodes
    rates = dice.gamma(chosen + shape, size=(DRAWS, len(chosen))) / (1 + shape / mean)
    drawn: Floats = np.clip((rates - mean).sum(axis=1) / total, -1.0, 1.0)
    return drawn

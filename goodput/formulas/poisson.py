"""Counts of rare failures: the exact interval of a rate, and how many to expect at most. Pure arithmetic."""

import math
from collections.abc import Callable

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

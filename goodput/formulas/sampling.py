"""How sure a measured figure is: draws of a failure rate, and intervals of means by drawing again.

Everything is seeded: the same records give the same interval.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """The interval of a mean; None of fewer than two values: nobody knows how they vary."""
    if len(values) < 2:
        return None
    return within(mean_draws(np.asarray(values, dtype=np.float64)[:, None], generator())[:, 0], confidence)


def within(draws: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """The limits within which the middle share of the draws lies."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)

"""Intervals of measured figures: exact where exact ones are known, and covering what they claim."""

import numpy as np
import pytest

from goodput.formulas.failure_rates import DRAWS, generator, interval, mean_draws, mean_interval, rate_draws, within


@pytest.mark.parametrize("count", [1, 5, 40])
def test_the_draws_of_a_rate_end_at_garwoods_limits(count: int) -> None:
    """The lower draws at the lower limit, the upper ones at the upper."""
    low, high = rate_draws(count, 10.0, generator())
    exact = interval(count)
    assert within(low)[0] == pytest.approx(exact[0] / 10, rel=0.12, abs=0.002)
    assert within(high)[1] == pytest.approx(exact[1] / 10, rel=0.06)
    assert bool((high > low).all())


def test_no_failure_may_still_be_some() -> None:
    """Below nothing; above, the logarithm of the tail."""
    low, high = rate_draws(0, 1.0, generator())
    assert within(low) == (0.0, 0.0)
    assert within(high)[1] == pytest.approx(3.689, rel=0.07)


def test_the_interval_of_a_mean_covers_as_often_as_it_says() -> None:
    """Of 300 samples of 25 lengths the true mean lies within at least 87 %."""
    dice = np.random.default_rng(7)
    means = 0
    for _ in range(300):
        lengths = dice.exponential(100.0, 25).tolist()
        low, high = mean_interval(lengths) or (0.0, 0.0)
        means += low <= 100 <= high
    assert means >= 0.87 * 300  # a bootstrap of few skewed values is known to be a little narrow


def test_one_value_has_no_interval_of_its_mean() -> None:
    """Nobody knows how it varies; two do, and the same each time."""
    assert mean_interval([5.0]) is None
    assert mean_interval([4.0, 6.0]) == mean_interval([4.0, 6.0]) == (4.0, 6.0)
    assert DRAWS >= 1_000


def test_rows_are_drawn_whole_and_very_many_by_the_normal_distribution() -> None:
    """Columns that hang together stay so; the spread is that of a mean, either way."""
    dice = np.random.default_rng(2)
    for count in (900, 4_000):
        first = dice.exponential(10.0, count)
        means = mean_draws(np.stack((first, 2 * first), axis=1), generator())
        assert means.shape == (DRAWS, 2)
        assert np.allclose(means[:, 1], 2 * means[:, 0], rtol=1e-5)
        assert float(means[:, 0].std()) == pytest.approx(float(first.std()) / np.sqrt(count), rel=0.06)
        assert float(means[:, 0].mean()) == pytest.approx(float(first.mean()), rel=0.01)

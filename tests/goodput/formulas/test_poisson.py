"""Counts of rare failures, against published values."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.formulas.failure_rates import binomial_quantile, cdf, interval


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (100, 81.364, 121.627)]
)
def test_the_exact_interval_is_garwoods(count: int, low: float, high: float) -> None:
    """Two-sided 95 % limits as published tables give them."""
    assert interval(count) == pytest.approx((low, high), abs=2e-3)


def test_the_distribution_at_its_edges() -> None:
    """Nothing below zero, everything where the mean is zero, e^-m at zero."""
    assert cdf(-1, 2.0) == 0.0
    assert cdf(0, 0.0) == 1.0
    assert cdf(0, 2.0) == pytest.approx(math.exp(-2))


@pytest.mark.parametrize(("trials", "share", "needed"), [(0, 0.5, 0), (10, 0.0, 0), (10, 1.0, 10), (10, 0.5, 9)])
def test_the_binomial_quantile_at_its_edges(trials: int, share: float, needed: int) -> None:
    """No trials, never, always, a coin."""
    assert binomial_quantile(0.99, trials, share) == needed


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.floats(0.001, 0.999), st.floats(0.5, 0.999))
def test_the_quantile_is_the_least_that_suffices(trials: int, share: float, confidence: float) -> None:
    """One fewer would not do."""
    chances = [math.comb(trials, n) * share**n * (1 - share) ** (trials - n) for n in range(trials + 1)]
    needed = binomial_quantile(confidence, trials, share)
    assert math.fsum(chances[: needed + 1]) >= confidence - 1e-9
    assert math.fsum(chances[:needed]) < confidence + 1e-9


@pytest.mark.parametrize("wrong", [(-1, 0.95), (1, 0.0), (1, 1.0)])
def test_an_impossible_interval_is_refused(wrong: tuple[int, float]) -> None:
    """Negative counts and certainties."""
    with pytest.raises(ValueError, match="no interval"):
        interval(*wrong)


@pytest.mark.parametrize("wrong", [(0.99, -1, 0.5), (0.99, 1, 1.5), (1.0, 1, 0.5)])
def test_an_impossible_quantile_is_refused(wrong: tuple[float, int, float]) -> None:
    """Negative trials, a probability above one, certainty."""
    with pytest.raises(ValueError, match="no quantile"):
        binomial_quantile(*wrong)

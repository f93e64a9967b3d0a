"""The forms of the checkpoint interval: against each other, their limits, and a search."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.formulas.checkpoint_interval import daly_s, expected_goodput, optimum_s, young_s

STALLS = st.floats(0.01, 3_600.0)
TIMES = st.floats(60.0, 1e7)


@settings(max_examples=100)
@given(STALLS, TIMES)
def test_the_exact_optimum_solves_its_equation(save_s: float, mttf_s: float) -> None:
    """1 - L D = exp(-L (D + w))."""
    interval = optimum_s(save_s, mttf_s)
    assert 1 - interval / mttf_s == pytest.approx(math.exp(-(interval + save_s) / mttf_s), abs=1e-9)


@settings(max_examples=100)
@given(STALLS, TIMES, st.floats(0.0, 3_600.0))
def test_no_other_interval_is_better(save_s: float, mttf_s: float, restart_s: float) -> None:
    """Whatever the way back costs: it does not move the optimum."""
    best = optimum_s(save_s, mttf_s)
    top = expected_goodput(best, save_s, restart_s, mttf_s)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert expected_goodput(best * factor, save_s, restart_s, mttf_s) <= top + 1e-12


@settings(max_examples=100)
@given(STALLS, TIMES)
def test_dalys_higher_order_is_the_optimum_to_a_few_percent_while_failures_are_rarer_than_saves(
    save_s: float, mttf_s: float
) -> None:
    """To a percent of the period up to half the time between failures."""
    if save_s < mttf_s / 2:
        assert daly_s(save_s, mttf_s) + save_s == pytest.approx(optimum_s(save_s, mttf_s) + save_s, rel=0.01)


def test_short_saves_meet_young() -> None:
    """sqrt(2 w M) in the limit; saves that cost nothing are taken at once."""
    assert optimum_s(1e-4, 1e7) == pytest.approx(young_s(1e-4, 1e7), rel=1e-4)
    assert optimum_s(0.0, 100.0) == 0.0


def test_a_save_far_longer_than_the_time_between_failures_is_made_at_that_time() -> None:
    """The limit of the equation: D = M."""
    assert optimum_s(1e5, 10.0) == pytest.approx(10.0)


@pytest.mark.parametrize(("save_s", "mttf_s"), [(-1.0, 10.0), (1.0, 0.0), (1.0, math.nan)])
def test_impossible_figures_have_no_interval(save_s: float, mttf_s: float) -> None:
    """One sentence, no crash further in."""
    with pytest.raises(ValueError, match="no interval for"):
        optimum_s(save_s, mttf_s)


def test_an_interval_of_nothing_brings_nothing() -> None:
    """No work between saves; nor is anything done if failures come far more often than saves."""
    assert expected_goodput(0.0, 10.0, 10.0, 1000.0) == 0.0
    assert expected_goodput(3600.0, 10.0, 1e9, 1.0) == 0.0

"""Saves in the background and to memory: what they bring, and up to which stall."""

import math

import pytest
from simulated_run import Policy, exponential, simulate

from goodput.formulas.checkpoint_interval import expected_goodput, in_background, optimum_s, two_levels

SAVE, BACK, MTTF = 60.0, 600.0, 10_800.0


def test_at_the_break_even_stall_both_kinds_are_worth_the_same() -> None:
    """By the exact form; a second less pays, a second more does not."""
    limit = in_background(SAVE, SAVE, BACK, MTTF).break_even_stall_s
    assert limit is not None
    assert in_background(SAVE, SAVE, BACK, MTTF, limit).gain == pytest.approx(0.0, abs=1e-9)
    assert in_background(SAVE, SAVE, BACK, MTTF, limit - 1).pays
    assert not in_background(SAVE, SAVE, BACK, MTTF, limit + 1).pays


def test_the_first_order_break_even_of_the_page_is_near() -> None:
    """(sqrt(w) - write / sqrt(2 M))^2."""
    limit = in_background(SAVE, SAVE, BACK, MTTF).break_even_stall_s
    assert limit == pytest.approx((math.sqrt(SAVE) - SAVE / math.sqrt(2 * MTTF)) ** 2, rel=0.01)


def test_writing_that_takes_longer_than_failures_leave_pays_at_no_stall() -> None:
    """The save is never safe before the next failure."""
    kind = in_background(SAVE, 50_000.0, BACK, MTTF)
    assert (kind.break_even_stall_s, kind.pays) == (None, False)


def test_one_save_at_a_time() -> None:
    """The next is not begun before the one before is written."""
    assert in_background(SAVE, 900.0, BACK, MTTF, 0.01).interval_s == 900.0


@pytest.mark.parametrize("write_s", [0.0, 60.0, 300.0])
def test_a_simulated_run_gains_from_the_background_what_the_form_says(write_s: float) -> None:
    """The writing costs what as much time to restart does."""
    kind = in_background(SAVE, write_s, BACK, MTTF, 2.0)
    policy = Policy(kind.interval_s, 2.0, BACK, write_s=write_s)
    run = simulate(policy, exponential(MTTF, 200_000, seed=3))
    assert run.goodput == pytest.approx(kind.goodput, abs=3 * run.half_width)


def test_memory_saves_pay_below_their_break_even() -> None:
    """m < w (1 - sqrt(1 - f))^2 / f; there the first-order losses are equal."""
    limit = two_levels(SAVE, 0.9, BACK, MTTF).break_even_stall_s
    assert limit == pytest.approx(SAVE * (1 - math.sqrt(0.1)) ** 2 / 0.9)
    assert two_levels(SAVE, 0.9, BACK, MTTF, limit).gain == pytest.approx(0.0, abs=1e-9)
    assert two_levels(SAVE, 0.9, BACK, MTTF, limit * 0.99).pays
    assert not two_levels(SAVE, 0.9, BACK, MTTF, limit * 1.01).pays


def test_memory_that_no_failure_spares_pays_never_and_one_that_all_spare_always() -> None:
    """The ends of the share."""
    assert two_levels(SAVE, 0.0, BACK, MTTF).break_even_stall_s is None
    assert two_levels(SAVE, 0.0, BACK, MTTF).gain == pytest.approx(0.0)
    assert two_levels(SAVE, 1.0, BACK, MTTF).break_even_stall_s == SAVE
    now = expected_goodput(optimum_s(SAVE, MTTF), SAVE, BACK, MTTF)
    assert two_levels(SAVE, 1.0, BACK, MTTF).goodput > now


def test_a_share_beyond_all_is_refused() -> None:
    """In words."""
    with pytest.raises(ValueError, match="lies within 0 and 1"):
        two_levels(SAVE, 1.1, BACK, MTTF)

"""Intervals with a predictor: the published form, its borders, and runs that live through warnings."""

import math
import random

import pytest

from goodput.formulas.checkpoint_interval import Predictor, lost_share, optimum_s, plan

SAVE, BACK, MTTF = 60.0, 300.0, 20_000.0


def lived(interval_s: float, predictor: Predictor, trust_after_s: float | None, seed: int = 4) -> float:
    """The goodput of a run with warnings of the exact moment, walked through event by event.

    A warning that is heeded makes the run save so that it ends when the failure comes; the period goes on afterwards.
    """
    dice = random.Random(seed)
    recall, precision = predictor.recall, predictor.precision
    stall = SAVE if predictor.save_s is None else predictor.save_s
    rates = {"missed": (1 - recall) / MTTF, "true": recall / MTTF, "false": recall * (1 / precision - 1) / MTTF}
    names, weights, total = list(rates), list(rates.values()), sum(rates.values())
    clock = kept = at_risk = done = 0.0  # work kept, work since any save, work in this period
    for _ in range(25_000):
        kind = dice.choices(names, weights)[0]
        left = dice.expovariate(total)
        while left > 0:
            step = min(left, interval_s - done)
            clock, left, done, at_risk = clock + step, left - step, done + step, at_risk + step
            if done >= interval_s:
                clock, left = clock + SAVE, left - SAVE
                if left >= 0:
                    kept, at_risk, done = kept + at_risk, 0.0, 0.0
        if trust_after_s is not None and kind != "missed" and done >= trust_after_s:
            clock, kept, at_risk = clock + stall, kept + at_risk, 0.0
        if kind != "false":
            clock, done, at_risk = clock + BACK, done - at_risk, 0.0
    return kept / clock


def test_without_recall_the_plan_is_the_interval_without_a_predictor() -> None:
    """Nothing foretold, nothing gained."""
    made = plan(Predictor(0.0, 1.0), SAVE, MTTF)
    assert made.interval_s == pytest.approx(optimum_s(SAVE, MTTF))
    assert (made.use_warnings, made.gain) == (False, 0.0)


def test_the_period_is_the_published_one() -> None:
    """T = sqrt((2 M C - r Cp^2 / p^2) / (1 - r)), where failures are rare."""
    for recall in (0.3, 0.7, 0.9):
        made = plan(Predictor(recall, 0.8, save_s=30.0), 60.0, 1e7)
        period = math.sqrt((2 * 1e7 * 60.0 - recall * 30.0**2 / 0.8**2) / (1 - recall))
        assert made.interval_s + 60.0 == pytest.approx(period, rel=0.005)
        assert made.trust_after_s == 30.0 / 0.8


@pytest.mark.parametrize("recall", [0.3, 0.7])
@pytest.mark.parametrize("precision", [0.2, 0.8])
def test_no_other_period_loses_less(recall: float, precision: float) -> None:
    """The derivative of the published loss is zero there (to the second order that the advice adds)."""
    predictor = Predictor(recall, precision)
    made = plan(predictor, SAVE, MTTF)
    assert made.use_warnings
    for factor in (0.7, 0.9, 1.1, 1.4):
        other = lost_share((made.interval_s + SAVE) * factor, predictor, SAVE, MTTF)
        assert other >= made.lost_share - 2e-4


@pytest.mark.parametrize("recall", [0.4, 0.8])
@pytest.mark.parametrize("precision", [0.3, 0.9])
def test_a_run_with_the_plan_is_within_two_tenths_of_a_point_of_the_best(recall: float, precision: float) -> None:
    """Brute force over intervals, with and without heeding warnings, on the same warnings and failures."""
    predictor = Predictor(recall, precision, save_s=30.0)
    made = plan(predictor, SAVE, MTTF)
    mine = lived(made.interval_s, predictor, made.trust_after_s)
    alone = lived(optimum_s(SAVE, MTTF), predictor, None)
    others = [lived(made.interval_s * 2 ** (k / 2), predictor, made.trust_after_s) for k in range(-3, 4)]
    assert mine >= max(others) - 0.002
    assert mine - alone == pytest.approx(made.gain, abs=0.005)


def test_a_warning_that_comes_too_late_changes_nothing() -> None:
    """The save is not done before the failure."""
    made = plan(Predictor(0.9, 0.9, lead_s=59.0), SAVE, MTTF)
    assert (made.use_warnings, made.gain, made.why) == (False, 0.0, "a warning comes too late for a save")
    assert made.interval_s == optimum_s(SAVE, MTTF)
    assert plan(Predictor(0.9, 0.9, lead_s=60.0), SAVE, MTTF).use_warnings


def test_a_day_of_warning_is_worth_no_save() -> None:
    """A score says that a node fails within 24 hours: by then regular saves have come many times over."""
    made = plan(Predictor(0.9, 0.9, window_s=86_400.0), SAVE, MTTF)
    assert not made.use_warnings
    assert made.why == "the failure may come later than the next save is due"
    near = plan(Predictor(0.9, 0.9, window_s=60.0), SAVE, MTTF)
    assert 0 < near.gain < plan(Predictor(0.9, 0.9), SAVE, MTTF).gain


def test_false_warnings_make_a_plan_without_them_better() -> None:
    """One in five thousand comes true: the saves cost more than they keep."""
    made = plan(Predictor(0.5, 0.0002), SAVE, MTTF)
    assert (made.use_warnings, made.why) == (False, "the saves cost more than they keep")


def test_a_perfect_predictor_never_stretches_the_interval_beyond_the_time_between_failures() -> None:
    """Nothing is missed: the form has no finite period."""
    made = plan(Predictor(1.0, 1.0), SAVE, MTTF)
    assert made.interval_s == pytest.approx(MTTF, rel=1e-4)
    assert made.to_json()["gain"] == pytest.approx(made.gain)


@pytest.mark.parametrize("wrong", [(-0.1, 0.5), (1.1, 0.5), (0.5, 0.0), (0.5, 1.1)])
def test_shares_lie_within_their_ranges(wrong: tuple[float, float]) -> None:
    """A precision of zero would mean endless warnings."""
    with pytest.raises(ValueError, match="recall lies in"):
        Predictor(*wrong)


def test_a_plan_needs_a_stall_and_failures() -> None:
    """Both above zero."""
    with pytest.raises(ValueError, match="a plan needs"):
        plan(Predictor(0.5, 0.5), 0.0, MTTF)


def test_frequent_failures_take_the_exact_optimum_of_the_effective_stall() -> None:
    """C - r Cp^2 / (2 p^2 M) and M / (1 - r): two per cent of the period here."""
    made = plan(Predictor(0.9, 0.2), SAVE, MTTF)
    stall = SAVE - 0.9 * (SAVE / 0.2) ** 2 / (2 * MTTF)
    assert made.interval_s + SAVE == pytest.approx(optimum_s(stall, MTTF / 0.1) + stall, rel=1e-6)

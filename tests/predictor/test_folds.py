"""Folds: time-ordered, purged, and clear when there is too little."""

from datetime import timedelta

import pytest
from fleet_store import day
from hypothesis import given
from hypothesis import strategies as st

from predictor.dataset.folds import BacktestSettings, NoDataError, grid, plan

SPAN = (day(0), day(120))


def test_the_later_half_is_judged_by_default() -> None:
    """From a midnight on, daily, as long as answers are known; learning ends a purge before."""
    found = plan(SPAN, BacktestSettings())
    assert found.test[0] == day(60)
    assert found.test[-1] == day(119)
    assert [fold.test_start for fold in found.folds] == [day(60), day(74), day(88), day(102)]
    assert found.folds[0].train_end == day(60) - timedelta(hours=36)
    assert found.learn[0] >= day(1)


@given(
    horizon_h=st.sampled_from([24, 72, 168]),
    cadence_h=st.floats(3, 60),
    first=st.floats(40, 80),
    length=st.floats(0.5, 39),
    fold_days=st.floats(1, 30),
)
def test_no_fold_learns_within_a_purge_of_its_test(
    horizon_h: int, cadence_h: float, first: float, length: float, fold_days: float
) -> None:
    """Whatever is asked: folds follow each other, and hold every moment exactly once."""
    settings = BacktestSettings(horizon_h, cadence_h, day(first), day(first + length), fold_days=fold_days)
    found = plan(SPAN, settings)
    assert all(fold.test_start - fold.train_end >= timedelta(hours=horizon_h + 12) for fold in found.folds)
    assert all(day(first) <= moment < day(first + length) for moment in found.test)
    for moment in found.test:
        assert sum(fold.test_start <= moment < fold.test_end for fold in found.folds) == 1
    assert max(found.learn) <= found.folds[-1].train_end


def test_given_moments_are_judged_in_order() -> None:
    """In any order, twice or not."""
    found = plan(SPAN, BacktestSettings(moments=(day(90), day(70.5), day(90))))
    assert found.test == (day(70.5), day(90))
    assert sum(len([m for m in found.test if f.test_start <= m < f.test_end]) for f in found.folds) == 2


def test_the_end_of_the_test_is_exclusive() -> None:
    """A moment at --test-end is not judged; one whose answer is unknown is scored when asked for."""
    found = plan(SPAN, BacktestSettings(test_start=day(110), test_end=day(120)))
    assert found.test[-1] == day(119)
    late = plan(SPAN, BacktestSettings(test_start=day(118), test_end=day(120.5)))
    assert late.test == (day(118), day(119), day(120))


@pytest.mark.parametrize(
    ("span", "settings", "said"),
    [
        (None, BacktestSettings(), "run `foreshock ingest`"),
        ((day(0), day(20)), BacktestSettings(), r"too short, 20\.0 days where 31 are needed"),
        ((day(0.1), day(30.5)), BacktestSettings(), r"too short, 30\.4 days where 31 are needed"),
        (SPAN, BacktestSettings(test_start=day(2)), "set a later --test-start"),
        (SPAN, BacktestSettings(test_start=day(90), test_end=day(90)), "no moment to judge"),
    ],
)
def test_too_little_data_is_said_clearly(span: object, settings: BacktestSettings, said: str) -> None:
    """What is missing and what to do."""
    with pytest.raises(NoDataError, match=said):
        plan(span, settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("horizon_h", [24, 168, 720])
@pytest.mark.parametrize("begin", [0, 0.4])
def test_as_many_days_as_are_said_to_be_needed_are_enough(horizon_h: int, begin: float) -> None:
    """The number that the refusal tells is the least that works."""
    settings = BacktestSettings(horizon_h)
    with pytest.raises(NoDataError) as refused:
        plan((day(begin), day(begin + 20)), settings)
    needed = int(str(refused.value).partition(" are needed")[0].rpartition(" ")[2])
    assert plan((day(begin), day(begin + needed)), settings).test
    with pytest.raises(NoDataError):
        plan((day(begin), day(begin + needed - 1)), settings)


def test_a_grid_ends_at_its_last_moment() -> None:
    """Backwards from the last, ascending; empty when that lies before the start."""
    assert grid(day(0), day(1.25), 12.0) == (day(0.25), day(0.75), day(1.25))
    assert grid(day(1), day(0), 12.0) == ()


@pytest.mark.parametrize(
    ("horizon_h", "every_h", "fold_days"), [(24, 12.0, 14.0), (168, 24.0, 14.0), (720, 168.0, 60.0)]
)
def test_learning_and_folds_keep_to_the_horizon(horizon_h: int, every_h: float, fold_days: float) -> None:
    """Rows closer to each other than the answer is long say the same again; both can be set."""
    settings = BacktestSettings(horizon_h)
    assert (settings.learn_every_h, settings.fold_length) == (every_h, timedelta(days=fold_days))
    chosen = BacktestSettings(horizon_h, learn_cadence_h=6, fold_days=1)
    assert (chosen.learn_every_h, chosen.fold_length) == (6, timedelta(days=1))
    found = plan((day(0), day(400)), settings)
    assert {b - a for a, b in zip(found.learn, found.learn[1:], strict=False)} == {timedelta(hours=every_h)}


def test_a_longer_purge_can_be_asked_for() -> None:
    """As long as the longest window of the features, to see whether nearness in time flatters."""
    settings = BacktestSettings(least_purge_h=28 * 24 + 12)
    found = plan(SPAN, settings)
    assert settings.purge_h == 684
    assert found.folds[0].test_start - found.folds[0].train_end == timedelta(hours=684)

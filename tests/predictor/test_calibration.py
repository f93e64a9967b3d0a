"""The line from log-odds to probabilities."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from predictor.model.fit import CalibrationLine, HeldOutScores, calibrate, fit_line, sharpened
from predictor.model.forest import sigmoid


def seen(slope: float, offset: float, rows: int = 60_000, seed: int = 1) -> HeldOutScores:
    """What was said of rows whose true log-odds are a line through it."""
    random = np.random.default_rng(seed)
    said = random.normal(-4, 1.5, rows)
    return HeldOutScores(said, random.random(rows) < sigmoid(slope * said + offset), np.ones(rows))


def half(rows: HeldOutScores) -> np.ndarray:
    """The later half."""
    return np.arange(len(rows.log_odds)) >= len(rows.log_odds) / 2


def test_a_line_that_is_there_is_found() -> None:
    """Too bold, and too high."""
    rows = seen(0.6, -1.0)
    line = calibrate(rows, half(rows))
    assert (line.slope, line.offset) == (pytest.approx(0.6, abs=0.06), pytest.approx(-1.0, abs=0.2))
    assert rows.losses(line).sum() < rows.losses(CalibrationLine()).sum()


def test_with_many_rows_it_is_the_line_of_logistic_regression() -> None:
    """The prior fades."""
    rows = seen(0.8, 0.5, 200_000)
    other = LogisticRegression(C=1e9).fit(rows.log_odds[:, None], rows.positive)
    line = fit_line(rows)
    assert line.slope == pytest.approx(other.coef_[0, 0], abs=0.01)
    assert line.offset == pytest.approx(other.intercept_[0], abs=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_it_never_loses_on_what_was_judged_last(seed: int) -> None:
    """With few positives, and a past that says the contrary of what came."""
    early, late = seen(0.4, -1.0, 400, seed), seen(1.3, 0.5, 400, seed + 50)
    pairs = ((early.log_odds, late.log_odds), (early.positive, late.positive))
    rows = HeldOutScores(*(np.concatenate(pair) for pair in pairs),
                weight=np.ones(800))  # fmt: skip
    line, last = calibrate(rows, half(rows)), half(rows)
    assert rows.only(last).losses(line).sum() <= rows.only(last).losses(CalibrationLine()).sum()


def test_a_past_that_misleads_is_not_followed() -> None:
    """A line that would have lost on the last rows is left out."""
    early, late = seen(1.0, 2.0, 5_000), seen(1.0, -0.5, 20_000, 2)
    rows = HeldOutScores(
        np.concatenate([early.log_odds, late.log_odds]),
        np.concatenate([early.positive, late.positive]),
        np.ones(25_000),
    )
    assert calibrate(rows, np.arange(25_000) >= 5_000) == CalibrationLine()


def test_a_sharper_line_tells_as_many_failures_and_keeps_the_order() -> None:
    """More of them among the riskiest, fewer among the others; the answers move nothing."""
    rows = seen(1.0, 0.0)
    sharp = rows.through(sharpened(rows))
    before, after = sigmoid(rows.log_odds), sigmoid(sharp.log_odds)
    assert after.mean() == pytest.approx(before.mean(), rel=1e-6)
    top = rows.log_odds > np.quantile(rows.log_odds, 0.99)
    assert after[top].mean() > 1.05 * before[top].mean()
    assert (np.argsort(sharp.log_odds) == np.argsort(rows.log_odds)).all()
    assert sharpened(replace(rows, positive=~rows.positive)) == sharpened(rows)


def test_bold_scores_are_no_way_out() -> None:
    """Where nearly every row is certain and some are wrong, a whole step of Newton's goes to a slope of thousands."""
    random = np.random.default_rng(5)
    positive = random.random(400) < 0.1
    said = np.where(random.random(400) < 0.9, np.where(positive, 9.0, -11.0), np.where(positive, -11.0, 9.0))
    rows = HeldOutScores(said * 2, positive, np.ones(400))
    line = fit_line(rows)
    assert 0 < line.slope < 0.5
    assert rows.losses(line).sum() < rows.losses(CalibrationLine()).sum()


def test_a_handful_of_positives_hardly_moves_it() -> None:
    """Held near the line that changes nothing."""
    rows = HeldOutScores(np.array([-4.0, -3.0, -5.0, -4.0]), np.array([True, False, False, True]), np.ones(4))
    line = fit_line(rows)
    assert abs(line.slope - 1) < 0.5
    assert calibrate(rows, np.array([False, False, True, False])) == CalibrationLine()


def test_rows_that_were_drawn_stand_for_the_others() -> None:
    """A tenth of the negatives, each for ten: the same line."""
    rows = seen(0.7, -0.5, 200_000)
    kept = rows.positive | (np.arange(200_000) % 10 == 0)
    some = rows.only(kept)
    drawn = HeldOutScores(some.log_odds, some.positive, np.where(some.positive, 1.0, 10.0))
    assert fit_line(drawn).slope == pytest.approx(fit_line(rows).slope, abs=0.03)
    assert fit_line(drawn).offset == pytest.approx(fit_line(rows).offset, abs=0.1)


def test_a_ranking_is_never_turned_around() -> None:
    """What came may be the contrary of what was said; the order stays."""
    said = np.linspace(-5, 5, 5_000)
    assert fit_line(HeldOutScores(said, said < 0, np.ones(5_000))) == CalibrationLine()


def test_a_line_never_makes_scores_bolder() -> None:
    """Trees that were too shy in both parts: a steeper line would gain, and is left; one that tempers is taken."""
    last = np.arange(60_000) >= 30_000
    shy, bold = seen(1.4, 0.0), seen(0.7, 0.0)
    assert fit_line(shy).slope > 1.3
    assert calibrate(shy, last) == CalibrationLine()
    assert calibrate(bold, last).slope < 0.8

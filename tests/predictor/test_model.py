"""Fitting: what is learned, what is refused, what stays the same."""

import numpy as np
import pytest

from predictor.features import FEATURES, NAMES
from predictor.model import MIN_POSITIVES, FitSettings, TooFewPositivesError, fit, telling

SMALL = FitSettings(members=2, trees=40)


def rows_and_labels(count: int = 8000, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """1 % positive; a count of hardware Xids lifts the odds; everything else is noise, gaps or constant."""
    random = np.random.default_rng(seed)
    rows = np.full((count, len(NAMES)), np.nan, dtype=np.float32)
    rows[:, :20] = random.normal(size=(count, 20))
    xids = random.poisson(0.05, count)
    rows[:, NAMES.index("hardware_xid_7d")] = xids
    return rows, random.random(count) < np.where(xids > 0, 0.12, 0.004)


def test_probabilities_keep_their_scale_though_negatives_are_drawn() -> None:
    """The mean probability is the prevalence, not that of the sample."""
    rows, positive = rows_and_labels()
    probability = fit(rows, positive, SMALL).probability(rows)
    assert probability.mean() == pytest.approx(positive.mean(), rel=0.35)
    lifted = rows[:, NAMES.index("hardware_xid_7d")] > 0
    # Forty short steps hold back: far up, not beyond what was seen.
    assert 5 * probability[~lifted].mean() < probability[lifted].mean() < 1.35 * positive[lifted].mean()


def test_the_same_data_give_the_same_model() -> None:
    """Nothing depends on chance, threads or time."""
    rows, positive = rows_and_labels()
    one, other = (fit(rows, positive, SMALL).probability(rows) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_more_of_a_bad_sign_never_lowers_the_risk() -> None:
    """Even where the sample says so by chance: the constraint holds."""
    rows, positive = rows_and_labels()
    column = NAMES.index("hardware_xid_7d")
    rows[:, column] = np.where(positive, 0, rows[:, column])
    forest = fit(rows, positive, SMALL)
    probe = np.repeat(rows[:200], 6, axis=0)
    probe[:, column] = np.tile(np.arange(6), 200)
    assert (np.diff(forest.probability(probe).reshape(200, 6), axis=1) >= -1e-12).all()
    assert FEATURES[column].monotonic == 1


@pytest.mark.parametrize("positives", [0, MIN_POSITIVES - 1])
def test_too_few_positives_are_named_with_what_is_needed(positives: int) -> None:
    """The message tells how many there are and how many are needed."""
    rows, _ = rows_and_labels(100)
    positive = np.arange(100) < positives
    with pytest.raises(TooFewPositivesError, match=rf"{positives} of 100 rows .* {MIN_POSITIVES} are needed"):
        fit(rows, positive)


def test_all_positives_are_refused() -> None:
    """There is nothing to tell them from."""
    rows, _ = rows_and_labels(50)
    with pytest.raises(TooFewPositivesError):
        fit(rows, np.ones(50, dtype=bool))


def test_columns_that_say_nothing_are_left_out() -> None:
    """All unknown, or always the same."""
    rows = np.array([[1, 2, np.nan, 5], [1, 3, np.nan, np.nan]], dtype=np.float32)
    assert telling(rows).tolist() == [1]

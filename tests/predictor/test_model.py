"""Fitting: what is learned, what is refused, what stays the same."""

from dataclasses import replace

import numpy as np
import pytest

from predictor.dataset.matrix import FIXED
from predictor.history.arrays import Feature
from predictor.model import fit as fitting
from predictor.model.fit import (
    MIN_POSITIVES,
    VARIED,
    FitSettings,
    RowWeights,
    TooFewPositivesError,
    blocks,
    fit,
    informative_columns,
    suited_settings,
)
from predictor.model.forest import Forest

FEATURES = FIXED
NAMES = [feature.name for feature in FEATURES]

SMALL = FitSettings(members=2, trees=60)


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
    probability = fit(rows, positive, FEATURES, SMALL).probability(rows)
    assert probability.mean() == pytest.approx(positive.mean(), rel=0.35)
    lifted = rows[:, NAMES.index("hardware_xid_7d")] > 0
    # Sixty short steps hold back: far up, not beyond what was seen.
    assert 5 * probability[~lifted].mean() < probability[lifted].mean() < 1.35 * positive[lifted].mean()


def test_many_positives_draw_four_negatives_each_and_are_learned_from_faster() -> None:
    """Beyond what `most_negatives` suffices for: as if that were so many and the rate higher; up to twice as high."""
    rows, positive = rows_and_labels()
    few = replace(SMALL, most_negatives=4 * int(positive.sum()))
    many = replace(SMALL, most_negatives=int(positive.sum()))
    probability = fit(rows, positive, FEATURES, many).probability(rows)
    twice = fit(rows, positive, FEATURES, replace(few, learning_rate=2 * few.learning_rate)).probability(rows)
    np.testing.assert_array_equal(probability, twice)
    more = replace(many, most_negatives=many.most_negatives // 3)
    np.testing.assert_array_equal(fit(rows, positive, FEATURES, more).probability(rows), probability)
    assert not np.array_equal(fit(rows, positive, FEATURES, few).probability(rows), probability)


def test_the_same_data_give_the_same_model() -> None:
    """Nothing depends on chance, threads or time."""
    rows, positive = rows_and_labels()
    one, other = (fit(rows, positive, FEATURES, SMALL).probability(rows) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_more_of_a_bad_sign_never_lowers_the_risk() -> None:
    """Even where the sample says so by chance: the constraint holds."""
    rows, positive = rows_and_labels()
    column = NAMES.index("hardware_xid_7d")
    rows[:, column] = np.where(positive, 0, rows[:, column])
    forest = fit(rows, positive, FEATURES, SMALL)
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
        fit(rows, positive, FEATURES)


def test_all_positives_are_refused() -> None:
    """There is nothing to tell them from."""
    rows, _ = rows_and_labels(50)
    with pytest.raises(TooFewPositivesError):
        fit(rows, np.ones(50, dtype=bool), FEATURES)


def test_columns_that_say_nothing_are_left_out() -> None:
    """All unknown, or always the same."""
    rows = np.array([[1, 2, np.nan, 5], [1, 3, np.nan, np.nan]], dtype=np.float32)
    assert informative_columns(rows).tolist() == [1]


def asked_together(forest: Forest, features: tuple[Feature, ...]) -> list[set[str]]:
    """The groups that each tree asks."""
    return [
        {features[forest.feature[split]].group for split in splits} for splits in forest.splits_of_trees() if splits
    ]


def test_a_tree_asks_one_group_or_the_measures_with_model_and_age() -> None:
    """So that the log-odds are a sum over blocks."""
    rows, positive = rows_and_labels(4000)
    measures = tuple(Feature(f"{name}.last", name, None) for name in ("smart_5", "smart_187", "smart_9"))
    features = FEATURES[:-3] + measures
    rows[:, -3:] = np.random.default_rng(1).normal(size=(4000, 3)) + positive[:, None]
    met = asked_together(fit(rows, positive, features, SMALL), features)
    together = {"smart_5", "smart_187", "smart_9", "model", "age"}
    assert all(len(groups) == 1 or groups <= together for groups in met)
    assert {"smart_5", "smart_187"} <= max(met, key=len)
    free = FitSettings(members=1, trees=40, alone=False)
    assert max(len(groups) for groups in asked_together(fit(rows, positive, features, free), features)) > 2


def test_blocks_share_out_every_column_once() -> None:
    """Columns that say nothing are in none."""
    features = (Feature("a_7d", "a"), Feature("b", "b"), Feature("m.last", "m"), Feature("a_28d", "a"))
    features += (Feature("n.last", "n"),)
    assert blocks(features, np.array([0, 2, 3, 4])) == [[0, 2], [1, 3]]
    maker = Feature("model", "model", None)
    counter = Feature("smart_5.last", "smart_5", None)
    assert blocks([maker, counter, features[0]], np.arange(3)) == [[0, 1], [2]]
    assert blocks([maker, features[0]], np.arange(2)) == [[0], [1]]


def test_measures_ask_for_larger_trees() -> None:
    """Whatever they are called; a group of features that are known by name is none."""
    assert suited_settings(FEATURES) == FitSettings()
    assert suited_settings([*FEATURES, Feature("fan_rpm.last", "fan_rpm", None)]) == FitSettings(leaves=16)


def test_members_differ_in_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One learns faster, to another old rows count less; where none does, a row's age says nothing."""
    rows, positive = rows_and_labels()
    some, alike = replace(SMALL, members=len(VARIED)), np.ones(len(rows))

    def said(oldest_d: float) -> list[float]:
        weights = RowWeights(alike, np.linspace(oldest_d, 0.0, len(rows)))
        found: list[float] = fit(rows, positive, FEATURES, some, weights=weights).log_odds(rows).tolist()
        return found

    varied = said(0.0)
    assert said(900.0) != varied
    monkeypatch.setattr(fitting, "VARIED", ((1, None),))
    assert said(900.0) == said(0.0) != varied


def test_a_share_of_the_negatives_is_taken_back() -> None:
    """Ten thousand rows, of whose negatives a tenth was kept: the scale is that of the whole."""
    rows, positive = rows_and_labels(20_000)
    kept = positive | (np.arange(20_000) % 10 == 0)
    forest = fit(rows[kept], positive[kept], FEATURES, SMALL, negative_share=0.1)
    assert forest.probability(rows).mean() == pytest.approx(positive.mean(), rel=0.35)


def test_a_row_that_weighs_nothing_teaches_nothing() -> None:
    """Half of the rows say the contrary, and count for nothing."""
    rows, positive = rows_and_labels()
    column = NAMES.index("hardware_xid_7d")
    contrary = rows.copy()
    contrary[:, column] = np.where(positive, 0, 3)
    both, weight = np.concatenate([rows, contrary]), np.repeat([1.0, 1e-9], len(rows))
    forest = fit(both, np.tile(positive, 2), FEATURES, SMALL, weights=RowWeights(weight, 0 * weight))
    probability = forest.probability(rows)
    assert probability.mean() == pytest.approx(positive.mean(), rel=0.5)
    lifted = rows[:, column] > 0
    assert probability[lifted].mean() > 3 * probability[~lifted].mean()

"""Forests: the same answers as scikit-learn's, stored without code."""

import io
import pickle

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from predictor.model.fit import Bins, FittedBooster, average
from predictor.model.forest import (
    MOST_LEAVES,
    Forest,
    ModelError,
    digest,
    from_bytes,
    sigmoid,
    to_bytes,
)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Rows with gaps, and whether each is positive."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(3000, 6)).astype(np.float32)
    rows[random.random(rows.shape) < 0.2] = np.nan
    return rows, np.nan_to_num(rows[:, 1]) + np.nan_to_num(rows[:, 4]) * np.isnan(rows[:, 2]) > 1.2


@pytest.fixture(scope="module")
def fitted() -> tuple[list[FittedBooster], Bins, np.ndarray]:
    """Two boosters on different columns, one with the most leaves a tree may have, and what they learned from."""
    rows, positive = data()
    bins, grown = Bins.of(rows), []
    for columns, leaves in ((np.array([0, 1, 2, 4]), 7), (np.array([1, 3, 4, 5]), MOST_LEAVES)):
        booster = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=leaves, early_stopping=False)
        with threadpool_limits(1):
            grown.append(FittedBooster(booster.fit(bins.codes(rows)[:, columns], positive), columns))
    return grown, bins, rows


def test_a_forest_answers_as_its_boosters_do_on_average(fitted) -> None:  # type: ignore[no-untyped-def]
    """The mean of `decision_function`, gaps included; rows that nobody learned from, too."""
    grown, bins, rows = fitted
    new = np.random.default_rng(4).normal(scale=3, size=rows.shape).astype(np.float32)
    new[0], new[1] = np.inf, -np.inf
    for asked in (rows, new):
        codes = bins.codes(asked)
        with threadpool_limits(1):
            expected = np.mean([one.booster.decision_function(codes[:, one.columns]) for one in grown], axis=0)
        np.testing.assert_allclose(average(grown, bins).log_odds(asked), expected, atol=1e-9)


def test_many_rows_are_asked_in_blocks_and_answer_the_same(fitted) -> None:  # type: ignore[no-untyped-def]
    """A row's answer depends on no other row."""
    grown, bins, rows = fitted
    forest = average(grown, bins)
    many = np.tile(rows, (7, 1))
    np.testing.assert_array_equal(forest.probability(many), np.tile(forest.probability(rows), 7))
    assert len(forest.probability(rows[:0])) == 0


def test_trees_without_a_split_say_one_thing(fitted) -> None:  # type: ignore[no-untyped-def]
    """Nothing to tell rows apart: the base rate."""
    _, bins, rows = fitted
    same, positive = np.zeros((3000, 6), dtype=np.float32), np.arange(3000) < 30
    with threadpool_limits(1):
        booster = HistGradientBoostingClassifier(max_iter=3, early_stopping=False).fit(same, positive)
    forest = average([FittedBooster(booster, np.arange(6))], bins)
    assert len(forest.tree) == 0
    assert forest.probability(rows) == pytest.approx(np.full(3000, 0.01), rel=1e-6)


def test_a_forest_survives_storage(fitted) -> None:  # type: ignore[no-untyped-def]
    """Bytes and back: the same probabilities to the last bit."""
    grown, bins, rows = fitted
    forest = average(grown, bins)
    blob = to_bytes(forest)
    again = from_bytes(blob, digest(blob))
    np.testing.assert_array_equal(again.probability(rows), forest.probability(rows))
    assert to_bytes(again) == blob


def test_a_damaged_model_is_refused(fitted) -> None:  # type: ignore[no-untyped-def]
    """One flipped bit, and the digest tells."""
    blob = to_bytes(average(*fitted[:2]))
    damaged = bytes([blob[0] ^ 1]) + blob[1:]
    with pytest.raises(ModelError, match="damaged"):
        from_bytes(damaged, digest(blob))


def test_a_pickle_is_never_loaded() -> None:
    """Neither alone nor inside an archive: a stored model cannot run code."""
    alone = pickle.dumps({"tree": [1]})
    with pytest.raises(ModelError, match="another kind"):
        from_bytes(alone, digest(alone))
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.array([object()]) for name in ("tree", "feature", "threshold", "numbers")})
    with pytest.raises(ModelError, match="another kind"):
        from_bytes(buffer.getvalue(), digest(buffer.getvalue()))


def test_a_model_of_an_older_program_is_refused() -> None:
    """Its arrays have other names: the message says to train again."""
    buffer = io.BytesIO()
    np.savez(buffer, roots=np.zeros(1), left=np.zeros(1), numbers=np.zeros(4))
    with pytest.raises(ModelError, match="train again"):
        from_bytes(buffer.getvalue(), digest(buffer.getvalue()))


def test_unknown_values_go_where_the_split_sends_them() -> None:
    """A value at the threshold goes left."""
    forest = Forest(
        tree=np.array([0, 1]), feature=np.array([0, 0]), threshold=np.array([1.0, 1.0], dtype=np.float32),
        missing_left=np.array([True, False]), kills=np.array([1, 1], dtype=np.uint16),
        value=np.pad([[1.0, 2.0], [10.0, 20.0]], ((0, 0), (0, MOST_LEAVES - 2))), baseline=100.0,
    )  # fmt: skip
    rows = np.array([[1.0], [1.5], [np.nan]], dtype=np.float32)
    assert forest.log_odds(rows).tolist() == [111.0, 122.0, 121.0]


def test_probabilities_are_calibrated_by_a_line() -> None:
    """Slope and offset act on the log-odds; the extremes stay finite."""
    nothing = np.zeros(0, dtype=np.int64)
    forest = Forest(
        nothing, nothing, nothing.astype(np.float32), nothing.astype(bool), nothing.astype(np.uint16),
        np.full((1, MOST_LEAVES), 2.0), baseline=-1.0, slope=2.0, offset=-2.0,
    )  # fmt: skip
    rows = np.zeros((3, 1), dtype=np.float32)
    assert forest.probability(rows).tolist() == [0.5] * 3
    assert sigmoid(np.array([-1e9, 0.0, 1e9])).tolist() == pytest.approx([0, 0.5, 1])

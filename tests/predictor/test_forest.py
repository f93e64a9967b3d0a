"""Forests: the same answers as scikit-learn's, stored without code."""

import io
import pickle

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from predictor.forest import Forest, ModelError, digest, from_bytes, sigmoid, to_bytes
from predictor.model import average


@pytest.fixture(scope="module")
def fitted() -> tuple[list[tuple[HistGradientBoostingClassifier, np.ndarray]], np.ndarray]:
    """Two boosters on different columns of data with gaps, and the data."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(3000, 6)).astype(np.float32)
    rows[random.random(rows.shape) < 0.2] = np.nan
    positive = np.nan_to_num(rows[:, 1]) + np.nan_to_num(rows[:, 4]) * np.isnan(rows[:, 2]) > 1.2
    boosters = []
    for columns in (np.array([0, 1, 2, 4]), np.array([1, 3, 4, 5])):
        booster = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=9, early_stopping=False)
        boosters.append((booster.fit(rows[:, columns], positive), columns))
    return boosters, rows


def test_a_forest_answers_as_its_boosters_do_on_average(fitted) -> None:  # type: ignore[no-untyped-def]
    """The mean of `decision_function`, gaps included."""
    boosters, rows = fitted
    expected = np.mean([booster.decision_function(rows[:, columns]) for booster, columns in boosters], axis=0)
    np.testing.assert_allclose(average(boosters).log_odds(rows), expected, atol=1e-9)


def test_a_forest_survives_storage(fitted) -> None:  # type: ignore[no-untyped-def]
    """Bytes and back: the same probabilities to the last bit."""
    boosters, rows = fitted
    forest = average(boosters)
    blob = to_bytes(forest)
    again = from_bytes(blob, digest(blob))
    np.testing.assert_array_equal(again.probability(rows), forest.probability(rows))
    assert to_bytes(again) == blob


def test_a_damaged_model_is_refused(fitted) -> None:  # type: ignore[no-untyped-def]
    """One flipped bit, and the digest tells."""
    blob = to_bytes(average(fitted[0]))
    damaged = bytes([blob[0] ^ 1]) + blob[1:]
    with pytest.raises(ModelError, match="damaged"):
        from_bytes(damaged, digest(blob))


def test_a_pickle_is_never_loaded() -> None:
    """Neither alone nor inside an archive: a stored model cannot run code."""
    alone = pickle.dumps({"roots": [1]})
    with pytest.raises(ModelError, match="another kind"):
        from_bytes(alone, digest(alone))
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.array([object()]) for name in ("feature", "threshold", "numbers")})
    with pytest.raises(ModelError, match="another kind"):
        from_bytes(buffer.getvalue(), digest(buffer.getvalue()))


def test_probabilities_are_calibrated_by_a_line() -> None:
    """Slope and offset act on the log-odds; the extremes stay finite."""
    leaf = np.zeros(1, dtype=np.int64)
    forest = Forest(
        feature=leaf, threshold=np.array([np.inf]), missing_left=np.array([True]), left=leaf, right=leaf,
        value=np.array([2.0]), roots=leaf, depth=0, baseline=-1.0, slope=2.0, offset=-2.0,
    )  # fmt: skip
    rows = np.zeros((3, 1), dtype=np.float32)
    assert forest.probability(rows).tolist() == [0.5] * 3
    assert sigmoid(np.array([-1e9, 0.0, 1e9])).tolist() == pytest.approx([0, 0.5, 1])

"""The figures of the oracle, against scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from simulator.output.truth import average_precision, rank, roc_auc

ROWS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=60).filter(
    lambda rows: 0 < sum(label for _, label in rows) < len(rows)
)


@given(ROWS)
def test_figures_equal_scikit_learns(rows: list[tuple[int, bool]]) -> None:
    """With many ties."""
    scores = np.array([score for score, _ in rows], dtype=np.float64)
    labels = np.array([label for _, label in rows])
    assert roc_auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))


def test_the_top_is_taken_at_each_moment() -> None:
    """Two moments of a hundred nodes: the best of each is looked at, not the best two of all."""
    scores = np.concatenate([np.arange(100.0), np.arange(100.0) + 1000])
    labels = np.zeros(200, dtype=bool)
    labels[[99, 198]] = True
    moments = np.repeat([0, 1], 100)
    found = rank(scores, labels, moments)
    assert found.recall_at_top == {"0.01": 0.5, "0.02": 1.0, "0.05": 1.0}
    assert found.prevalence == 0.01
    assert found.lift == pytest.approx((found.average_precision or 0) / 0.01)


@pytest.mark.parametrize("label", [True, False])
def test_one_kind_of_row_has_no_figures(label: bool) -> None:
    """Nothing to tell apart: None, not 0."""
    found = rank(np.arange(3.0), np.full(3, label), np.zeros(3, dtype=np.int64))
    assert found.roc_auc is None
    assert found.lift is None
    assert set(found.recall_at_top.values()) == {None}


def test_no_rows_have_no_figures() -> None:
    """Not even a prevalence."""
    found = rank(np.array([]), np.array([], dtype=bool), np.array([], dtype=np.int64))
    assert (found.rows, found.prevalence) == (0, None)

"""Codes of values: their order, their number, and the way back to thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from predictor.model.fit import MOST_CODES, Bins

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(arrays(np.float32, st.integers(1, 300), elements=FLOATS), arrays(np.float32, 20, elements=FLOATS))
def test_a_code_is_at_most_another_exactly_where_the_value_is_at_most_its_threshold(
    seen: np.ndarray, asked: np.ndarray
) -> None:
    """For every threshold between codes, and values that were never seen."""
    bins = Bins.of(seen[:, None], most=8)
    codes = bins.codes(asked[:, None])[:, 0]
    assert np.isnan(codes).tolist() == np.isnan(asked).tolist()
    for code in range(len(bins.edges[0]) + 1):
        threshold = bins.thresholds(np.array([0]), np.array([code + 0.5]))[0]
        assert (codes <= code + 0.5).tolist() == (asked <= threshold).tolist()


@given(arrays(np.float32, st.integers(1, 400), elements=FLOATS))
def test_there_are_no_more_codes_than_asked_for(seen: np.ndarray) -> None:
    """Edges ascend strictly."""
    edges = Bins.of(seen[:, None], most=8).edges[0]
    assert len(edges) < 8
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("many", [2, 10, MOST_CODES])
def test_few_different_values_keep_a_code_each(many: int) -> None:
    """Counts are not blurred."""
    values = np.repeat(np.arange(many, dtype=np.float32), 50)[:, None]
    assert Bins.of(values).codes(values)[:, 0].tolist() == values[:, 0].tolist()


def test_many_different_values_are_cut_into_about_equal_parts() -> None:
    """Whatever their scale."""
    values = np.exp(np.random.default_rng(1).normal(size=(10_000, 1)) * 3).astype(np.float32)
    counts = np.unique(Bins.of(values, most=10).codes(values), return_counts=True)[1]
    assert len(counts) == 10
    assert counts.min() > 900
    assert counts.max() < 1_100


def test_a_column_that_says_nothing_has_one_code() -> None:
    """All unknown, or always the same."""
    values = np.array([[np.nan, 5], [np.nan, 5]], dtype=np.float32)
    assert [len(edges) for edges in Bins.of(values).edges] == [0, 0]

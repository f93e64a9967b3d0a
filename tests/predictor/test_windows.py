"""Counting in windows, against the plain way."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from predictor.windows import WindowIndex, largest, spread

EVENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(1, 9)), max_size=40)


@given(events=EVENTS, moments=st.lists(st.integers(-5, 60), min_size=1, max_size=5), window=st.integers(1, 70))
def test_sums_and_ages_equal_a_plain_count(events: list[tuple[int, int, int]], moments: list[int], window: int) -> None:
    """For any events, moments and window: [t - window, t)."""
    groups, times, weights = (np.array([e[i] for e in events], dtype=np.int64) for i in range(3))
    index = WindowIndex.of(groups, times, weights.astype(np.float64))
    at = np.array(moments, dtype=np.int64)
    sums, ages = index.sums(at, window), index.age_ms(at, window)
    assert sums.shape == (len(moments), len(set(groups.tolist())))
    for row, moment in enumerate(moments):
        for column, group in enumerate(sorted(set(groups.tolist()))):
            inside = [(t, w) for g, t, w in events if g == group and moment - window <= t < moment]
            assert sums[row, column] == sum(w for _, w in inside)
            last = max((t for t, _ in inside), default=None)
            assert np.isnan(ages[row, column]) if last is None else ages[row, column] == moment - last


def test_groups_without_events_are_filled_in() -> None:
    """A grid over all nodes: what nobody saw gets the fill."""
    grid = spread(np.array([[3.0, 5.0]]), np.array([1, 3]), 5, -1.0)
    assert grid.tolist() == [[-1, 3, -1, 5, -1]]


def test_the_largest_of_an_owner_is_taken() -> None:
    """Devices of one node compete; a node without devices has 0."""
    assert largest(np.array([[1.0, 7.0, 2.0]]), np.array([0, 0, 2]), 4).tolist() == [[7, 0, 2, 0]]
    assert largest(np.empty((2, 0)), np.empty(0, dtype=np.int64), 2).tolist() == [[0, 0], [0, 0]]

"""Counting in windows, against the plain way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.history.arrays import DAY_MS, DeviceIndex, WindowIndex, distinct, largest_of_row, largest_within

EVENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(1, 9)), max_size=40)
ASKED = st.lists(st.tuples(st.integers(-1, 6), st.integers(-5, 60)), min_size=1, max_size=8)


@given(events=EVENTS, asked=ASKED, window=st.integers(1, 70))
def test_counts_sums_and_ages_equal_a_plain_count(
    events: list[tuple[int, int, int]], asked: list[tuple[int, int]], window: int
) -> None:
    """For any events, groups, moments and window: [t - window, t); a group below 0 has nothing."""
    groups, times, weights = (np.array([e[i] for e in events], dtype=np.int64) for i in range(3))
    line = WindowIndex.of(groups, times)
    ordered = line.ordered(weights.astype(np.float64))
    of, at = (np.array([a[i] for a in asked], dtype=np.int64) for i in range(2))
    counts, ages = line.count(of, at, window), line.age_d(of, at, window)
    sums = line.sums(of, at, window, ordered)
    for row, (group, moment) in enumerate(asked):
        inside = [(t, w) for g, t, w in events if g == group and moment - window <= t < moment]
        assert counts[row] == len(inside)
        assert sums[row] == sum(w for _, w in inside)
        last = max((t for t, _ in inside), default=None)
        assert np.isnan(ages[row]) if last is None else ages[row] == (moment - last) / DAY_MS


@given(
    values=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=20),
    windows=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8),
)
def test_the_largest_of_a_window_is_the_plain_one(values: list[int | None], windows: list[tuple[int, int]]) -> None:
    """What was not measured is passed over; an empty window, or one of nothing measured, has none."""
    given_values = np.array([np.nan if value is None else value for value in values], dtype=np.float32)
    bounds = [(min(a, len(values)), min(b, len(values))) for a, b in windows]
    first, end = (np.array([b[i] for b in bounds], dtype=np.int64) for i in range(2))
    found = largest_within(given_values, first, end)
    for row, (a, b) in enumerate(bounds):
        inside = [value for value in values[a:b] if value is not None]
        assert found[row] == max(inside) if inside else np.isnan(found[row])


def test_the_parts_of_a_subject_are_found_again() -> None:
    """Devices of one subject are neighbours, whatever order they came in; a subject without any has none."""
    parts = DeviceIndex.number(np.array([2, 0, 2, 2]), np.array([7, 7, 3, 7]), 4)
    row, part = parts.each(np.array([2, 1, 0, 2]))
    assert row.tolist() == [0, 0, 2, 3, 3]
    assert part.tolist() == [1, 2, 0, 1, 2]
    assert parts.of.tolist() == [2, 0, 1, 2]


def test_the_largest_of_a_row_is_taken() -> None:
    """Devices of one row compete; a row without any has the fill."""
    assert largest_of_row(np.array([1.0, 7.0, np.nan, 2.0]), np.array([0, 0, 0, 2]), 4, -1.0).tolist() == [7, -1, 2, -1]
    assert largest_of_row(np.empty(0), np.empty(0, dtype=np.int64), 2, 0.0).tolist() == [0, 0]


@pytest.mark.parametrize("size", [1, 7, 900, 10_000_000])
def test_distinct_numbers_are_those_of_a_sort(size: int) -> None:
    """Marked or sorted: the same numbers, the same places; of none, none."""
    for count in (0, 1, 300):
        numbers = np.random.default_rng(size).integers(0, size, count)
        found, place = distinct(numbers, size)
        expected, where = np.unique(numbers, return_inverse=True)
        assert found.tolist() == expected.tolist()
        assert place.tolist() == where.tolist()

"""Scores of a backtest by the moment that they speak from."""

from datetime import timedelta

from schedulers.policy.fact_queries import ScoreHistory

from .cluster import HOUR, NOW


def test_the_newest_moment_that_is_no_later_counts() -> None:
    """Nodes that were not scored then have none, rather than an old one."""
    rows = [(NOW + 12 * HOUR, "a", 0.2), (NOW, "a", 0.1), (NOW, "b", 0.3), (NOW, "a", 0.15)]
    found = ScoreHistory.of(rows)
    assert found.moments == (NOW, NOW + 12 * HOUR)
    assert found.newest(NOW - timedelta(microseconds=1)) == (None, {})
    assert found.newest(NOW) == (NOW, {"a": 0.15, "b": 0.3})
    assert found.newest(NOW + 12 * HOUR - timedelta(microseconds=1))[0] == NOW
    assert found.newest(NOW + 90 * HOUR) == (NOW + 12 * HOUR, {"a": 0.2})
    assert found.nodes == {"a", "b"}


def test_none_is_none() -> None:
    """No moment, no score."""
    assert ScoreHistory.of([]).newest(NOW) == (None, {})

"""Slow ranks by what each tells of its work, told apart from one bad report."""

from datetime import UTC, datetime, timedelta

import pytest

from diagnosis.hangs.slow_ranks import RankWork

T0 = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reports", "slow"),
    [((30, 10), []), ((30, 10, 10), []), ((30, 30), [3]), ((10, 30, 30, 30), [3]), ((30, 10, 30), [])],
)
def test_a_rank_is_slow_by_the_median_of_its_last_three_reports_and_never_by_one(
    reports: tuple[int, ...], slow: list[int]
) -> None:
    """A first report may be of a warm-up: of two the newer counts."""
    work = RankWork()
    for turn, told in enumerate(reports):
        work.take({rank: told if rank == 3 else 10 + rank / 100 for rank in range(8)}, T0 + timedelta(seconds=turn))
    assert work.slow() == slow

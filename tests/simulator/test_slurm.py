"""Slurm's rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.output.slurm import SACCT_HEADER, compress, drain_row, failure_row, job_row
from simulator.simulation import SimulatedCluster
from store.records.hostlist import expand


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([7], "gpu-007"),
        ([1, 2, 3], "gpu-[001-003]"),
        ([1, 2, 3, 7], "gpu-[001-003,007]"),
        ([1, 3, 5, 6], "gpu-[001,003,005-006]"),
    ],
)
def test_hosts_are_written_in_brackets(numbers: list[int], text: str) -> None:
    """As Slurm folds them."""
    assert compress([f"gpu-{number:03d}" for number in numbers]) == text


@given(st.sets(st.integers(1, 999), min_size=1))
def test_expanding_gives_the_hosts_back(numbers: set[int]) -> None:
    """In order."""
    names = [f"gpu-{number:03d}" for number in sorted(numbers)]
    assert expand(compress(names)) == names


def test_a_job_shows_only_what_is_known_by_then(small: SimulatedCluster) -> None:
    """Nothing, pending, running, over."""
    attempt = small.runs[0].attempts[0]

    def cells(at_ms: int) -> dict[str, str]:
        row = job_row(small.settings, small.layout, attempt, at_ms)
        assert row is not None
        return dict(zip(SACCT_HEADER.split("|"), row.split("|"), strict=True))

    assert job_row(small.settings, small.layout, attempt, attempt.submit_ms - 1) is None
    assert cells(attempt.submit_ms)["State"] == "PENDING"
    assert cells(attempt.submit_ms)["Start"] == "Unknown"
    assert cells(attempt.submit_ms)["NodeList"] == "None assigned"
    assert cells(attempt.start_ms)["State"] == "RUNNING"
    assert cells(attempt.start_ms)["Elapsed"] == "00:00:00"
    assert cells(attempt.end_ms)["State"] == attempt.state
    assert cells(attempt.end_ms)["End"] != "Unknown"


def test_days_stand_before_the_clock(large: SimulatedCluster) -> None:
    """D-HH:MM:SS."""
    attempt = max((a for run in large.runs for a in run.attempts), key=lambda a: a.end_ms - a.start_ms)
    row = job_row(large.settings, large.layout, attempt, attempt.end_ms)
    assert row is not None
    days, clock = row.split("|")[6].split("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    assert int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds == (attempt.end_ms - attempt.start_ms) // 1000


def test_outages_are_open_until_they_end(small: SimulatedCluster) -> None:
    """Unknown, as sacctmgr prints it."""
    failure, drain = small.outages[0], small.drains[0]
    for row_of, start, end in (
        (lambda at: failure_row(small.settings, small.layout, failure, at), failure.start_ms, failure.end_ms),
        (lambda at: drain_row(small.settings, small.layout, drain, at), drain.start_ms, drain.end_ms),
    ):
        assert row_of(start - 1) is None
        assert (row_of(start) or "").split("|")[2] == "Unknown"
        assert (row_of(end) or "").split("|")[2] != "Unknown"

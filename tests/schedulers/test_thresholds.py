"""From which probability acting pays: the published figures, and that they move the right way."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.settings import Costs, Thresholds
from schedulers.policy.thresholds import (
    ActionThresholds,
    avoid_pays_from,
    failure_gpu_h,
    save_pays_from,
    steps,
)

COSTS = Costs()


@pytest.mark.parametrize(("gpus", "precision"), [(10_000, 0.007), (1_024, 0.069)])
def test_a_soft_cordon_breaks_even_as_published(gpus: int, precision: float) -> None:
    """FIELD C: 17.6 GPU-h against 2,500 (256) for a quarter of an hour of the job."""
    assert avoid_pays_from(COSTS, gpus, 8) == pytest.approx(precision, abs=0.0005)
    assert failure_gpu_h(COSTS, gpus) == gpus / 4
    assert avoid_pays_from(COSTS, gpus, 8) * failure_gpu_h(COSTS, gpus) == pytest.approx(17.6)


def test_a_save_is_weighed_against_half_the_interval() -> None:
    """Of any job: its size stands on both sides."""
    assert save_pays_from(COSTS) == pytest.approx(60 / 540)
    assert save_pays_from(replace(COSTS, save_s=600)) == 1.0
    assert save_pays_from(replace(COSTS, lost_work_s=0)) == 1.0


def test_what_costs_nothing_pays_at_once_and_what_wins_nothing_at_certainty_only() -> None:
    """The ends of the scale."""
    assert avoid_pays_from(replace(COSTS, avoided_s=0), 1024, 8) == 0.0
    assert avoid_pays_from(replace(COSTS, averted=0), 1024, 8) == 1.0
    assert avoid_pays_from(replace(COSTS, averted=0, avoided_s=0), 1024, 8) == 0.0
    assert avoid_pays_from(COSTS, 8, 8) == 1.0
    assert avoid_pays_from(replace(COSTS, averted=0.5), 10_000, 8) == 2 * avoid_pays_from(COSTS, 10_000, 8)


def test_a_threshold_that_is_set_holds_and_none_lies_under_watch() -> None:
    """The break-even of a very large job is under 2 %: nothing is asked there until the operator lowers `watch`."""
    assert steps(Thresholds(avoid=0.3, checkpoint=0.4), COSTS, 10_000, 8) == ActionThresholds(0.02, 0.3, 0.4)
    assert steps(Thresholds(), COSTS, 10_000, 8).avoid == 0.02
    low = steps(Thresholds(watch=0.001), COSTS, 10_000, 8)
    assert low.avoid == pytest.approx(0.00704)
    assert steps(Thresholds(watch=0.5), COSTS, 10_000, 8) == ActionThresholds(0.5, 0.5, 0.5)


@given(
    costs=st.builds(
        Costs,
        *(st.floats(0, 1e5) for _ in range(4)),
        averted=st.floats(0, 1),
    ),
    watch=st.floats(0, 1),
    jobs=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)).map(sorted),
    gpus=st.tuples(st.integers(1, 16), st.integers(1, 16)).map(sorted),
)
def test_thresholds_are_probabilities_and_monotone(
    costs: Costs, watch: float, jobs: list[int], gpus: list[int]
) -> None:
    """The larger the job, the sooner a node is avoided; the larger the node, the later; no step under watch."""
    small, large = (steps(Thresholds(watch=watch), costs, job, gpus[0]) for job in jobs)
    assert large.avoid <= small.avoid
    assert large.checkpoint == small.checkpoint
    assert steps(Thresholds(watch=watch), costs, jobs[0], gpus[1]).avoid >= small.avoid
    for found in (small, large):
        assert watch == found.watch <= min(found.avoid, found.checkpoint)
        assert max(found.avoid, found.checkpoint) <= 1.0

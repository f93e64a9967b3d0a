"""Times between failures by component, and their law with scale."""

import math

import numpy as np
import pytest

from goodput.advice.mtbf import RunCount, by_component, scale_law


def test_each_component_has_its_rate_with_the_exact_interval() -> None:
    """Garwood's limits of 10 are 4.795 and 18.39."""
    every, gpu, host = by_component({"host": 5, "gpu": 10}, 5_000.0, 100)
    assert (every.component, gpu.component, host.component) == ("all", "gpu", "host")
    assert (every.failures, every.per_1000_node_days) == (15, 3.0)
    assert (gpu.low, gpu.high) == pytest.approx((4.795 / 5, 18.390 / 5), rel=1e-3)
    assert gpu.mtbf_node_h == 12_000.0
    assert gpu.mtbf_h == 120.0
    assert (gpu.mtbf_low_h, gpu.mtbf_high_h) == pytest.approx((24 / 18.390 * 50, 24 / 4.795 * 50), rel=1e-3)
    assert gpu.to_json()["component"] == "gpu"


def test_a_component_that_never_failed_has_a_least_time_alone() -> None:
    """Longer than 1 / 3.689 of what was watched."""
    every = by_component({}, 1_000.0, 10)[0]
    assert (every.mtbf_h, every.mtbf_node_h, every.mtbf_high_h) == (None, None, None)
    assert every.mtbf_low_h == pytest.approx(24 * 1_000 / 10 / 3.689, rel=1e-3)


def test_counts_in_proportion_to_nodes_have_the_exponent_one() -> None:
    """Whatever the time watched."""
    law = scale_law([RunCount(64, 6, 30.0), RunCount(128, 24, 60.0), RunCount(512, 24, 15.0)])
    assert law is not None
    assert law.exponent == pytest.approx(1.0, abs=1e-6)
    assert law.p_value == pytest.approx(1.0)
    assert law.low < 1 < law.high
    assert law.holds
    assert law.to_json()["holds"]


def test_failures_that_do_not_grow_with_nodes_break_the_law() -> None:
    """As many at 64 nodes as at 1024: what fails is not the nodes."""
    law = scale_law([RunCount(64, 30, 30.0), RunCount(1_024, 30, 30.0)])
    assert law is not None
    assert law.exponent == pytest.approx(0.0, abs=1e-6)
    assert law.p_value < 1e-6
    assert law.high < 1
    assert not law.holds


def test_the_likelihood_ratio_of_two_sizes_is_the_one_worked_by_hand() -> None:
    """10 and 30 failures on 100 and 200 nodes: against shares of a third and two thirds."""
    law = scale_law([RunCount(100, 10, 1.0), RunCount(200, 30, 1.0)])
    assert law is not None
    ratio = 2 * (10 * math.log(10 / (40 / 3)) + 30 * math.log(30 / (80 / 3)))
    assert law.p_value == pytest.approx(math.erfc(math.sqrt(ratio / 2)), rel=1e-6)
    assert law.exponent == pytest.approx(math.log(3) / math.log(2), abs=1e-6)


def test_a_true_law_is_rejected_one_time_in_twenty() -> None:
    """400 simulated fleets whose failures do grow with the nodes; the interval holds the truth as often."""
    dice = np.random.default_rng(3)
    rejected = missed = 0
    for _ in range(400):
        runs = [RunCount(n, int(dice.poisson(n * 20 * 0.004)), 20.0) for n in (128, 256, 512, 1_024)]
        law = scale_law(runs)
        assert law is not None
        rejected += not law.holds
        missed += not law.low <= 1 <= law.high
    assert 6 <= rejected <= 38
    assert abs(rejected - missed) <= 1


@pytest.mark.parametrize("runs", [[], [RunCount(64, 5, 1.0)], [RunCount(64, 0, 1.0), RunCount(128, 0, 1.0)]])
def test_one_size_or_no_failure_tells_nothing(runs: list[RunCount]) -> None:
    """Nor do runs without nodes or time."""
    assert scale_law(runs) is None
    assert scale_law([*runs, RunCount(0, 3, 1.0), RunCount(7, 3, 0.0)]) is None


def test_all_failures_at_one_size_leave_one_side_open() -> None:
    """The exponent goes as far as is told apart."""
    law = scale_law([RunCount(64, 0, 30.0), RunCount(128, 12, 30.0)])
    assert law is not None
    assert law.high == 12.0
    assert 1 < law.low < 12


def test_nothing_watched_is_refused() -> None:
    """In words."""
    with pytest.raises(ValueError, match="needs node-days"):
        by_component({}, 0.0, 1)


def test_many_runs_of_one_size_tell_what_one_long_run_tells() -> None:
    """The law knows sums alone; how many runs there were is told."""
    few = scale_law([RunCount(64, 12, 60.0), RunCount(512, 30, 20.0)])
    many = scale_law([RunCount(64, 6, 20.0), RunCount(64, 6, 40.0), RunCount(512, 10, 5.0), RunCount(512, 20, 15.0)])
    assert few is not None
    assert many is not None
    assert (many.exponent, many.p_value) == (few.exponent, few.p_value)
    assert (few.runs, many.runs) == (2, 4)

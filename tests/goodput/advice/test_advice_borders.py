"""Advice at its borders: no failure, one node, endless repairs, and intervals as the tables print them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.advice import checkpoint, spares
from goodput.advice.checkpoint import FIELD_RATE_PER_NODE_DAY, CheckpointInputs
from goodput.advice.spares import SparesInputs, share_down
from goodput.formulas.checkpoint_interval import daly_s, expected_goodput, optimum_s, young_s
from goodput.formulas.failure_rates import binomial_quantile, cdf, interval


@pytest.mark.parametrize(
    ("count", "confidence", "low", "high"),
    [
        (0, 0.90, 0.0, 2.996),
        (0, 0.99, 0.0, 5.298),
        (1, 0.90, 0.051, 4.744),
        (2, 0.95, 0.242, 7.225),
        (3, 0.95, 0.619, 8.767),
        (4, 0.95, 1.090, 10.242),
        (10, 0.95, 4.795, 18.390),
        (10, 0.90, 5.425, 16.962),
        (20, 0.95, 12.217, 30.888),
        (50, 0.95, 37.111, 65.919),
    ],
)
def test_the_interval_is_the_one_of_the_tables(count: int, confidence: float, low: float, high: float) -> None:
    """Garwood's limits as half the chi-squared quantiles give them."""
    assert interval(count, confidence) == pytest.approx((low, high), abs=6e-4)


def test_without_an_event_the_upper_limit_is_the_logarithm_of_the_tail() -> None:
    """In closed form: -ln(a/2)."""
    for confidence in (0.5, 0.9, 0.999):
        assert interval(0, confidence)[1] == pytest.approx(-math.log((1 - confidence) / 2))


def test_a_very_large_count_has_the_interval_of_the_normal_distribution() -> None:
    """No overflow, no loss of digits: within a thousandth of n -+ 1.96 sqrt(n)."""
    low, high = interval(2_000)
    assert low == pytest.approx(2_000 - 1.96 * math.sqrt(2_000), rel=1e-3)
    assert high == pytest.approx(2_000 + 1.96 * math.sqrt(2_000), rel=2e-3)


@settings(max_examples=40)
@given(st.integers(1, 100), st.floats(0.5, 0.999))
def test_each_limit_leaves_exactly_half_of_the_tail(count: int, confidence: float) -> None:
    """What defines the interval: P(X >= n | low) = P(X <= n | high) = a/2."""
    low, high = interval(count, confidence)
    tail = (1 - confidence) / 2
    assert 1 - cdf(count - 1, low) == pytest.approx(tail, abs=1e-9)
    assert cdf(count, high) == pytest.approx(tail, abs=1e-9)
    assert low < count < high


@pytest.mark.parametrize(("trials", "share", "confidence", "needed"), [(1, 0.5, 0.5, 0), (1, 0.5, 0.51, 1)])
def test_one_trial_is_covered_by_none_or_by_itself(trials: int, share: float, confidence: float, needed: int) -> None:
    """The border is the chance that it does not hold."""
    assert binomial_quantile(confidence, trials, share) == needed


def test_a_confidence_next_to_certainty_needs_no_more_than_all() -> None:
    """Rounding may keep the sum below it: then all of them is the answer, not an error."""
    assert binomial_quantile(1 - 1e-16, 3, 0.5) <= 3
    assert binomial_quantile(math.nextafter(1.0, 0.0), 40, 0.9) <= 40


def test_a_run_of_one_node_gets_advice() -> None:
    """Its time to failure is the node's."""
    advice = checkpoint.advise(CheckpointInputs(1, 2, 20.0, 30.0, 600.0))
    assert advice.mttf_s == 864_000.0
    assert advice.first_order_s == pytest.approx(math.sqrt(2 * 30 * 864_000))
    assert advice.interval_s == pytest.approx(optimum_s(30.0, 864_000.0))
    assert advice.higher_order_s == pytest.approx(daly_s(30.0, 864_000.0))
    assert advice.goodput_now is None


def test_no_failure_uses_the_published_rate_for_the_longest_interval_too() -> None:
    """Its lower limit of zero would mean never to save; the upper limit still shortens the advice."""
    advice = checkpoint.advise(CheckpointInputs(64, 0, 64.0, 30.0, 600.0, 0.0))
    assert advice.interval_longest_s == advice.interval_s
    assert advice.interval_shortest_s < advice.interval_s
    assert advice.rate_high == pytest.approx(3.689 / 64, rel=1e-3)
    assert advice.goodput_now is None  # an interval of zero is none
    assert advice.rate_per_node_day == FIELD_RATE_PER_NODE_DAY


def test_without_a_failure_in_very_many_node_days_the_span_still_holds_the_advice() -> None:
    """The published rate lies above what was seen: the shortest interval is not longer than the advised one."""
    advice = checkpoint.advise(CheckpointInputs(64, 0, 1e6, 30.0, 600.0))
    assert advice.interval_shortest_s <= advice.interval_s <= advice.interval_longest_s


def test_a_save_longer_than_the_time_between_failures_is_advised_at_that_time() -> None:
    """Daly's form ends there; nothing is gained, and the sentence stays finite."""
    advice = checkpoint.advise(CheckpointInputs(100_000, 1_000, 1.0, 3_600.0, 600.0, 600.0))
    assert advice.mttf_s == pytest.approx(0.000864)
    assert advice.interval_s == 1.0
    assert (advice.goodput_advised, advice.goodput_now) == (0.0, 0.0)


def test_the_two_forms_meet_at_the_border_of_twice_the_failure_time() -> None:
    """Daly's expression is continuous there to a few per cent: sqrt(4) M (1 + 1/3 + 1/9) - 2 M = 0.89 M."""
    below, above = daly_s(199.999, 100.0), daly_s(200.0, 100.0)
    assert below == pytest.approx(100.0 * 8 / 9, rel=1e-3)
    assert above == 100.0


@settings(max_examples=80)
@given(
    st.floats(1.0, 600.0),
    st.floats(3_600.0, 1e7),
    st.floats(0.0, 7_200.0),
)
def test_goodput_is_a_share_and_falls_with_every_cost(save_s: float, mttf_s: float, restart_s: float) -> None:
    """A longer stall, a longer way back or more failures never help."""
    every = young_s(save_s, mttf_s)
    best = expected_goodput(every, save_s, restart_s, mttf_s)
    assert 0 <= best < 1
    assert expected_goodput(every, save_s * 1.1, restart_s, mttf_s) <= best
    assert expected_goodput(every, save_s, restart_s + 60, mttf_s) <= best
    assert expected_goodput(every, save_s, restart_s, mttf_s / 2) <= best


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_tiny_cluster_needs_no_more_spares_than_it_has_nodes(nodes: int) -> None:
    """However often they fail and however long the repair takes."""
    advice = spares.advise(SparesInputs(nodes, 500, 10.0, 1e9))
    assert (advice.spares, advice.spares_low, advice.spares_high) == (nodes, nodes, nodes)
    assert advice.expected_down == pytest.approx(nodes, rel=1e-4)


def test_repairs_that_take_no_time_need_no_spare() -> None:
    """A node that reboots at once is never missed."""
    advice = spares.advise(SparesInputs(1250, 100, 1000.0, 0.0))
    assert (advice.spares, advice.spares_high, advice.expected_down) == (0, 0, 0.0)


def test_the_share_down_is_that_of_an_alternating_process() -> None:
    """One failure a day, a day's repair: half of the time; none without a failure; never above one."""
    assert share_down(1.0, 86_400.0) == 0.5
    assert share_down(0.0, 1e9) == 0.0
    assert share_down(1e6, 1e9) < 1.0


def test_more_confidence_never_needs_fewer_spares() -> None:
    """From the median to three nines."""
    inputs = SparesInputs(1250, 500, 100_000.0, 86_400.0)
    counts = [spares.advise(inputs, confidence).spares for confidence in (0.5, 0.9, 0.99, 0.999)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 2.0])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    """Certainty would need a spare for every node."""
    with pytest.raises(ValueError, match="no quantile"):
        spares.advise(SparesInputs(10, 1, 10.0, 60.0), confidence)


def test_the_plain_values_name_formula_and_source() -> None:
    """What an operator is shown beside the figure; every input comes along."""
    told = checkpoint.advise(CheckpointInputs(64, 6, 1280.0, 35.0, 900.0, 3600.0)).to_json()
    assert {"formula", "goodput_formula", "source", "rate_low", "rate_high", "mttf_s"} <= set(told)
    given = {"nodes": 64, "failures": 6, "node_days": 1280.0, "save_s": 35.0, "restart_s": 900.0, "interval_s": 3600.0}
    assert {name: told["inputs"][name] for name in given} == given
    assert "Binomial" in spares.advise(SparesInputs(10, 1, 10.0, 60.0)).to_json()["formula"]

"""The checkpoint interval, against the published figures and its own optimum."""

from dataclasses import replace

import pytest

from goodput.advice.checkpoint import CURVE_POINTS, FIELD_RATE_PER_NODE_DAY, CheckpointInputs, advise
from goodput.formulas.checkpoint_interval import Predictor, daly_s, expected_goodput, optimum_s, young_s


def inputs(nodes: int = 64, failures: int = 6, node_days: float = 1280.0, save_s: float = 35.0) -> CheckpointInputs:
    """Measured figures of a run."""
    return CheckpointInputs(nodes, failures, node_days, save_s, restart_s=900.0, interval_s=3600.0)


@pytest.mark.parametrize(("interval_min", "expected"), [(60, 0.72), (5, 0.934)])
def test_the_exact_goodput_is_what_the_field_gives_for_16384_gpus(interval_min: int, expected: float) -> None:
    """FIELD B2: 2048 nodes at 6.5 failures per 1000 node-days, 5 min of restart, saves that cost nothing."""
    mttf_s = 86_400 / (2048 * 6.5e-3)
    assert expected_goodput(interval_min * 60, 0.0, 300.0, mttf_s) == pytest.approx(expected, abs=0.006)


def test_the_advised_interval_is_the_best_one() -> None:
    """No interval from a tenth to ten times it yields more than a hair above it."""
    advice = advise(inputs())
    best = max(expected_goodput(advice.interval_s * 10 ** (k / 50), 35.0, 900.0, advice.mttf_s) for k in range(-50, 51))
    assert advice.goodput_advised >= best - 1e-5
    assert advice.goodput_now is not None
    assert advice.goodput_advised >= advice.goodput_now


def test_the_higher_order_approaches_the_first_order_and_stops_at_the_failure_time() -> None:
    """For short saves Daly's is Young's less the save; for saves longer than 2 M it is M."""
    assert daly_s(1.0, 1e6) == pytest.approx(young_s(1.0, 1e6), rel=0.001)
    assert young_s(50.0, 10_000.0) == pytest.approx(1000.0)
    assert daly_s(300.0, 100.0) == 100.0


def test_the_sample_decides_how_wide_the_advice_is() -> None:
    """Few failures: a wide span around the advice; many: a narrow one."""
    few, many = advise(inputs(failures=3, node_days=640)), advise(inputs(failures=300, node_days=64_000))
    for advice in (few, many):
        assert advice.interval_shortest_s < advice.interval_s < advice.interval_longest_s
        assert advice.rate_low < advice.rate_per_node_day < advice.rate_high
    assert few.interval_longest_s - few.interval_shortest_s > 3 * (many.interval_longest_s - many.interval_shortest_s)


def test_the_curve_is_highest_at_the_advised_interval() -> None:
    """It reaches past the present interval, however far that is; the band holds the line."""
    advice = advise(replace(inputs(), interval_s=200_000.0))
    best = max(advice.curve, key=lambda point: point.goodput)
    assert best.interval_s == pytest.approx(advice.interval_s)
    assert best.goodput == pytest.approx(advice.goodput_advised)
    assert advice.curve[-1].interval_s > 200_000.0
    assert all(point.low <= point.goodput <= point.high for point in advice.curve)
    assert len(advice.curve) == CURVE_POINTS


def test_without_a_failure_a_published_rate_is_used_and_said_so() -> None:
    """Zero failures are no zero rate."""
    advice = advise(inputs(failures=0))
    assert (advice.rate_is_measured, advice.rate_per_node_day) == (False, FIELD_RATE_PER_NODE_DAY)
    assert advice.rate_low == 0.0
    assert advice.to_json()["inputs"]["failures"] == 0


def test_a_hopeless_run_has_no_goodput() -> None:
    """Failures far more often than a save: nothing is ever finished, and no overflow."""
    assert expected_goodput(3600.0, 3600.0, 3600.0, 1.0) == 0.0


@pytest.mark.parametrize("wrong", [inputs(nodes=0), inputs(node_days=0.0), inputs(save_s=0.0)])
def test_advice_needs_something_measured(wrong: CheckpointInputs) -> None:
    """No nodes, no time, no stall."""
    with pytest.raises(ValueError, match="advice needs"):
        advise(wrong)


def test_the_intervals_of_all_that_was_measured_widen_the_advice() -> None:
    """The shortest at the most failures and the shortest stall; the goodput at the worst and best of all three."""
    sure = advise(inputs())
    wide = advise(replace(inputs(), save_low_s=20.0, save_high_s=60.0, restart_low_s=600.0, restart_high_s=1_500.0))
    assert wide.interval_s == sure.interval_s
    worst, best = (86_400 / (64 * rate) for rate in (wide.rate_high, wide.rate_low))
    assert wide.interval_shortest_s == pytest.approx(optimum_s(20.0, worst))
    assert wide.interval_longest_s == pytest.approx(optimum_s(60.0, best))
    assert wide.goodput_low == pytest.approx(expected_goodput(wide.interval_s, 60.0, 1_500.0, worst))
    assert wide.goodput_high == pytest.approx(expected_goodput(wide.interval_s, 20.0, 600.0, best))
    assert wide.goodput_low < sure.goodput_low < sure.goodput_advised < sure.goodput_high < wide.goodput_high


def test_a_predictor_and_other_saves_come_with_the_advice() -> None:
    """Its plan; the break-even stalls; none without a predictor."""
    told = advise(inputs(), predictor=Predictor(0.6, 0.5)).to_json()
    assert told["prediction"]["gain"] > 0
    assert told["background"]["break_even_stall_s"] > 0
    assert told["memory"]["pays"]
    assert advise(inputs()).to_json()["prediction"] is None

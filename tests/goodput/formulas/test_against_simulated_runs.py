"""The simulated run: against a run that is walked through event by event, and against the analytic ETTR."""

from itertools import accumulate

import numpy as np
import pytest
from simulated_run import (
    Floats,
    Policy,
    exponential,
    simulate,
    weibull,
)

from goodput.advice.checkpoint import CheckpointInputs, advise
from goodput.formulas.checkpoint_interval import optimum_s
from goodput.formulas.ettr import EttrSetting, exact, expected, linear, load


def walked(policy: Policy, failures_s: list[float]) -> float:
    """The seconds of work that count, found by living through the run: back, work, save, write, failure."""
    clock = safe = 0.0
    for failure in failures_s:
        clock += policy.detection_s + policy.restart_s
        done = 0.0
        while clock + policy.interval_s + policy.save_s <= failure:
            clock += policy.interval_s + policy.save_s
            done += policy.interval_s
            if clock + policy.write_s <= failure:
                safe += policy.interval_s
        clock = failure
        assert done >= 0
    return safe


@pytest.mark.parametrize("write_s", [0.0, 45.0])
@pytest.mark.parametrize("mttf_s", [400.0, 5_000.0])
def test_all_at_once_is_what_one_by_one_gives(mttf_s: float, write_s: float) -> None:
    """Failures that strike on the way back, saves that are not safe yet, periods cut short."""
    policy = Policy(300.0, 20.0, 100.0, write_s=write_s, detection_s=30.0)
    gaps = exponential(mttf_s, 2_000, seed=5)
    failures = list(accumulate(gaps.tolist()))
    assert simulate(policy, gaps).goodput * failures[-1] == pytest.approx(walked(policy, failures), rel=1e-9)


def test_the_shares_sum_to_one() -> None:
    """Nothing is lost but what is lost."""
    run = simulate(Policy(300.0, 20.0, 100.0), exponential(2_000.0, 1_000, seed=1))
    assert run.goodput + run.saving + run.lost + run.back == pytest.approx(1.0)
    assert min(run.goodput, run.saving, run.lost, run.back) > 0


GPUS, RATES = (1_000, 4_000, 16_000, 32_000, 100_000), (1.0, 2.3, 3.8, 6.5, 10.0, 20.0)


@pytest.mark.parametrize("gpus", GPUS)
@pytest.mark.parametrize("per_1000", RATES)
@pytest.mark.parametrize("interval_s", [None, 300.0, 3600.0], ids=["advised", "5 min", "1 h"])
def test_simulated_and_analytic_ettr_agree_within_five_percent(
    gpus: int, per_1000: float, interval_s: float | None
) -> None:
    """The exact form everywhere; where nothing is ever done (below 1 %), both say so. Saves of 30 s, back in 5 min."""
    mttf_s = 86_400 / (gpus / 8 * per_1000 / 1000)
    interval = optimum_s(30.0, mttf_s) if interval_s is None else interval_s
    setting = EttrSetting(gpus // 8, per_1000 / 1000, interval, 300.0, 30.0)
    run = simulate(Policy(interval, 30.0, 300.0), exponential(mttf_s, 100_000, seed=11))
    form, name = expected(setting)
    if exact(setting) < 0.01:
        assert run.goodput < 0.011
        return
    assert run.goodput == pytest.approx(exact(setting), rel=0.05)
    assert form == pytest.approx(run.goodput, rel=0.05), name


def test_the_linear_form_breaks_down_where_the_page_says() -> None:
    """Below a load of 0.1 it is within half a percent; at 1.3 it is far off."""
    for gpus in GPUS:
        for rate in RATES:
            setting = EttrSetting(gpus // 8, rate / 1000, 1_200.0, 300.0, 30.0)
            if load(setting) < 0.1:
                assert linear(setting) == pytest.approx(exact(setting), rel=0.006)
                assert expected(setting)[1] == "linear"
    large = EttrSetting(12_500, 20e-3, 120.0, 300.0, 30.0)
    assert load(large) > 1.0
    assert linear(large) < 0 < exact(large)
    assert expected(large)[1] == "exact"


@pytest.mark.parametrize("nodes", [128, 1_250, 12_500])
@pytest.mark.parametrize("per_1000", [2.3, 6.5, 20.0])
@pytest.mark.parametrize("save_s", [1.0, 35.0, 180.0, 1_200.0])
@pytest.mark.parametrize("restart_s", [120.0, 900.0])
def test_the_advised_interval_is_within_two_tenths_of_a_point_of_the_best(
    nodes: int, per_1000: float, save_s: float, restart_s: float
) -> None:
    """Measured on 30 simulated days (40 failures at least), judged on another history: 61 intervals, three decades."""
    mttf_s = 86_400 / (nodes * per_1000 / 1000)
    seen = exponential(mttf_s, max(40, round(30 * 86_400 / mttf_s)), seed=nodes)
    advice = advise(CheckpointInputs(nodes, len(seen), nodes * float(seen.sum()) / 86_400, save_s, restart_s))
    later = exponential(mttf_s, 20_000, seed=nodes + 1)

    def goodput(interval_s: float) -> float:
        return simulate(Policy(interval_s, save_s, restart_s), later).goodput

    best = max(goodput(optimum_s(save_s, mttf_s) * 10 ** (k / 20)) for k in range(-30, 31))
    assert goodput(advice.interval_s) >= best - 0.002


@pytest.mark.parametrize("shape", [0.7, 1.5])
def test_failures_with_a_memory_move_the_best_interval_little(shape: float) -> None:
    """Weibull failures of the same mean: the memoryless advice stays within half a point."""
    gaps = weibull(20_000.0, shape, 40_000, seed=2)
    assert float(gaps.mean()) == pytest.approx(20_000.0, rel=0.03)
    advised = simulate(Policy(optimum_s(60.0, 20_000.0), 60.0, 600.0), gaps).goodput
    best = max(
        simulate(Policy(optimum_s(60.0, 20_000.0) * 10 ** (k / 20), 60.0, 600.0), gaps).goodput for k in range(-20, 21)
    )
    assert advised >= best - 0.005


def test_a_wait_lengthens_the_way_back() -> None:
    """By what it is, stretch by stretch."""
    gaps: Floats = np.array([1000.0, 1000.0])
    assert simulate(Policy(100.0, 0.0, 100.0), gaps).goodput == pytest.approx(0.9)
    assert simulate(Policy(100.0, 0.0, 100.0), gaps, np.array([0.0, 200.0])).goodput == pytest.approx(0.8)


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"save_s": -1.0}, {"write_s": -1.0}, {"detection_s": -1.0}])
def test_a_policy_has_no_negative_time(wrong: dict[str, float]) -> None:
    """Nor an interval of nothing."""
    with pytest.raises(ValueError, match="a policy needs"):
        Policy(**{"interval_s": 1.0, "save_s": 1.0, "restart_s": 1.0, **wrong})


def test_without_a_failure_there_is_nothing_to_simulate() -> None:
    """Said in words."""
    with pytest.raises(ValueError, match="at least one failure"):
        simulate(Policy(1.0, 0.0, 0.0), np.array([]))

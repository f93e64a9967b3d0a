"""The ranked gains: against runs simulated with and without each change, and against chance."""

from dataclasses import replace

import numpy as np
import pytest
from made_history import history, random_history, stop
from simulated_run import Policy, exponential, simulate

from goodput.advice.gains import Gain, gains
from goodput.advice.run_history import goodput, model_of
from goodput.formulas.checkpoint_interval import Aims, Predictor
from goodput.formulas.failure_rates import expected_share, generator, shape_of, share_draws

RUN = random_history(120)


def by_lever(found: list[Gain], words: str) -> Gain:
    """The gain whose lever begins so."""
    return next(gain for gain in found if gain.lever.startswith(words))


def test_they_are_ranked_and_each_has_its_interval() -> None:
    """The largest first; the point within."""
    found = gains(RUN)
    assert [gain.gain for gain in found] == sorted((gain.gain for gain in found), reverse=True)
    for gain in found:
        assert gain.low <= gain.gain <= gain.high, gain
    assert len({gain.lever for gain in found}) == len(found) >= 7


def test_the_model_is_the_run_that_was() -> None:
    """Within a point of what the run measured."""
    assert float(goodput(model_of(RUN))) == pytest.approx(RUN.goodput, abs=0.01)


def test_a_quicker_detection_gains_what_a_simulated_run_gains() -> None:
    """From ten minutes to one, on the same failures."""
    found = by_lever(gains(RUN), "detection")
    assert (found.now, found.then) == (600.0, 60.0)
    gaps = exponential(RUN.wall_s / len(RUN.stops), 200_000, seed=9)
    slow = Policy(1800.0, 60.0, 360.0 + RUN.mean("waiting"), detection_s=600.0)
    gained = simulate(replace(slow, detection_s=60.0), gaps).goodput - simulate(slow, gaps).goodput
    assert found.gain == pytest.approx(gained, abs=0.001)
    assert "detection from 10 min to 60 s: +" in found.says


def test_what_is_as_good_as_its_aim_gains_nothing_and_is_left_out() -> None:
    """Detection, start and saves are there already."""
    aims = Aims(detection_s=600.0, restart_s=360.0, async_stall_s=60.0)
    names = [gain.lever for gain in gains(RUN, aims)]
    assert not any(name.startswith(("detection", "startup", "stall")) for name in names)
    assert gains(RUN, aims) != gains(RUN)


def test_a_component_that_is_half_of_the_failures_gains_half_of_what_they_cost() -> None:
    """To first order."""
    stops = tuple(stop(20_000.0 * n, component="gpu" if n % 2 else "host") for n in range(1, 41))
    run = history(stops)
    found = by_lever(gains(run), "failures without those of gpu")
    assert (found.now, found.then) == (40, 20)
    model = model_of(run)
    none = float(goodput(replace(model, rate=0.0)) - goodput(model))
    assert found.gain == pytest.approx(none / 2, rel=0.1)


def test_foretold_failures_gain_less_the_more_warnings_are_false() -> None:
    """Half foretold: with few false warnings nearly half of the loss is saved, with a hundred for one none."""
    good = by_lever(gains(RUN, predictor=Predictor(0.5, 0.9)), "failures foretold")
    worse = by_lever(gains(RUN, predictor=Predictor(0.5, 0.3)), "failures foretold")
    assert good.then == 60
    assert good.gain > worse.gain > 0
    assert by_lever(gains(RUN, predictor=Predictor(0.5, 0.9, lead_s=60.0)), "failures foretold") == good
    late = [gain.lever for gain in gains(RUN, predictor=Predictor(0.5, 0.9, lead_s=59.0))]  # a save takes 60 s
    assert not any(name.startswith("failures foretold") for name in late)
    useless = [gain.lever for gain in gains(RUN, predictor=Predictor(0.5, 0.005))]
    assert not any(name.startswith("failures foretold") for name in useless)


def test_fewer_failures_seen_make_wider_intervals() -> None:
    """Of the same rate."""
    few, many = by_lever(gains(random_history(8)), "detection"), by_lever(gains(random_history(300)), "detection")
    assert (few.high - few.low) > 3 * (many.high - many.low)


def test_the_interval_of_a_gain_holds_the_true_gain_as_often_as_it_says() -> None:
    """60 histories of 30 failures of one run: the gain that a long history shows lies within at least nine in ten."""
    truth = by_lever(gains(random_history(20_000, seed=99)), "detection").gain
    held = 0
    for seed in range(60):
        found = by_lever(gains(random_history(30, seed=seed)), "detection")
        held += found.low <= truth <= found.high
    assert held >= 54


def test_a_run_that_was_never_interrupted_or_never_saved_has_no_gains() -> None:
    """Said in words."""
    with pytest.raises(ValueError, match="never interrupted"):
        gains(history(()))
    with pytest.raises(ValueError, match="no two finished saves"):
        gains(replace(RUN, interval_s=None))


def test_nodes_that_fail_by_chance_alone_are_not_worth_removing() -> None:
    """Counts as even as dice make them: what the worst will do more is next to nothing, though they did much more."""
    dice = np.random.default_rng(5)
    counts = [int(count) for count in dice.poisson(0.5, 1_000) if count]
    worst = sorted(counts, reverse=True)[:5]
    assert sum(worst) / sum(counts) > 0.02
    assert expected_share(counts, 1_000, 5) < 0.012


def test_lemons_are_worth_what_they_do_in_the_time_after() -> None:
    """Gamma rates of shape 0.12 (FIELD D6): the estimate against what the same nodes do in as much time again."""
    dice = np.random.default_rng(8)
    promised, kept = [], []
    for _ in range(40):
        rates = dice.gamma(0.12, 0.5 / 0.12, 1_000)
        before, after = dice.poisson(rates), dice.poisson(rates)
        worst = np.argsort(-before, kind="stable")[:5]
        counts = [int(count) for count in before if count]
        promised.append(expected_share(counts, 1_000, 5))
        kept.append((after[worst].sum() - 5 * after.mean()) / after.sum())
    assert np.mean(promised) == pytest.approx(np.mean(kept), rel=0.1)
    drawn = share_draws(counts, 1_000, 5, generator())
    assert float(drawn.mean()) == pytest.approx(promised[-1], rel=0.05)


def test_the_shape_is_that_of_the_counts() -> None:
    """Infinite for even counts; small for a few nodes that hold all; impossible counts are refused."""
    assert shape_of([1] * 10, 10) == float("inf")
    assert shape_of([], 10) == float("inf")
    assert shape_of([50], 100) < 0.05
    assert expected_share([], 10, 5) == 0.0
    assert float(share_draws([1] * 10, 10, 5, generator()).sum()) == 0.0
    with pytest.raises(ValueError, match="cannot have failed"):
        shape_of([1, 1], 1)


def test_the_draws_of_the_worst_nodes_scatter_about_their_expectation() -> None:
    """With a shape that weighs as much as the counts."""
    counts = [4, 3, 2, 2, 1, 1, 1, 1]
    drawn = share_draws(counts, 40, 3, generator())
    assert float(drawn.mean()) == pytest.approx(expected_share(counts, 40, 3), rel=0.03)
    assert float(drawn.std()) > 0.03


def test_three_failures_may_have_been_a_fifth_of_one_in_the_long_run() -> None:
    """The lower end is that of Garwood's lower limit, 0.619 of 3; the upper one that of 8.77."""
    found = by_lever(gains(random_history(3)), "detection")
    assert found.low / found.gain == pytest.approx(0.619 / 3, abs=0.04)
    assert found.high / found.gain == pytest.approx(8.767 / 3, abs=0.5)


def test_a_quicker_start_gains_what_the_form_says() -> None:
    """Startup and load together at their aim, in the shares that they have."""
    model = model_of(RUN)
    quick = replace(model, startup=105 * 300 / 360, checkpoint_load=105 * 60 / 360)
    found = by_lever(gains(RUN), "startup and load")
    assert (found.now, found.then) == (360.0, 105.0)
    assert found.gain == pytest.approx(float(goodput(quick) - goodput(model)))


def test_what_pauses_and_evaluation_take_is_not_to_be_gained_by_fewer_failures() -> None:
    """A tenth paused and a tenth of the work not kept: the model's goodput shrinks by both."""
    slow = replace(RUN, kept_share=0.9, first_pause_s=0.1 * RUN.wall_s)
    assert float(goodput(model_of(slow))) == pytest.approx(0.81 * float(goodput(model_of(RUN))))

"""A history lived again: as it was, otherwise, and by the formula."""

from dataclasses import replace

import numpy as np
import pytest
from made_history import history, random_history, stop
from simulated_run import Policy, exponential, simulate

from goodput.advice.spares import expected_wait_s, waits_s
from goodput.advice.what_if import RunChange, what_if
from goodput.formulas.checkpoint_interval import Predictor

RUN = random_history(200)
# Unknown names would be as good as nothing: each option of a change and a value that changes something.
OPTIONS = {"interval_s": 600.0, "save_s": 1.0, "detection_s": 30.0, "restart_s": 60.0}


def test_nothing_changed_is_the_run_that_was() -> None:
    """The replay of what was gives what the ledger measured; no gain."""
    told = what_if(RUN, RunChange())
    assert told.replayed.as_was == pytest.approx(RUN.goodput, abs=0.006)
    assert told.replayed.gain == told.analytic.gain == 0.0
    assert (told.replayed.low, told.replayed.high) == (0.0, 0.0)
    assert told.stops == told.stops_then == 200


@pytest.mark.parametrize("name", OPTIONS)
def test_replay_and_formula_agree_over_a_memoryless_history(name: str) -> None:
    """To half a point of gain; the interval holds the gain, and the formula's."""
    told = what_if(RUN, RunChange(**{name: OPTIONS[name]}))
    assert told.replayed.gain != 0
    assert told.replayed.gain == pytest.approx(told.analytic.gain, abs=0.005)
    assert told.replayed.low is not None
    assert told.replayed.high is not None
    assert told.replayed.low <= told.replayed.gain <= told.replayed.high
    assert told.replayed.low - 0.002 <= told.analytic.gain <= told.replayed.high + 0.002


def test_a_stretch_lived_by_hand() -> None:
    """One stop at 10,000 s of 20,000: 5.4 periods before, half of one lost; 600 + 300 + 360 of way back; the rest."""
    run = history((stop(10_000.0),), 20_000.0)
    told = what_if(run, RunChange(detection_s=0.0))
    before, after = (10_000 / 1860 - 0.5) * 1800, (10_000 - 1_260) * 1800 / 1860
    assert told.replayed.as_was == pytest.approx((before + after) / 20_000)
    assert told.replayed.changed == pytest.approx((before + (10_000 - 660) * 1800 / 1860) / 20_000)


def test_saves_in_the_background_lose_what_is_not_written() -> None:
    """The work of as much time, of each stretch that a failure ends."""
    run = history((stop(5_000.0),), 20_000.0)
    safe = what_if(run, RunChange(write_s=0.0)).replayed.changed
    late = what_if(run, RunChange(write_s=372.0)).replayed.changed
    assert (safe - late) * 20_000 == pytest.approx(360.0)


def test_a_stretch_too_short_for_a_save_keeps_nothing() -> None:
    """Less than half a period before the failure."""
    run = history((stop(900.0),), 20_000.0)
    after = (20_000 - 900 - 1_260) * 1800 / 1860
    assert what_if(run, RunChange()).replayed.as_was * 20_000 == pytest.approx(after)


def test_an_avoided_stop_costs_a_move_alone() -> None:
    """The work before it is kept, and the run goes on."""
    run = history((stop(10_000.0),), 20_000.0)
    free = what_if(run, RunChange(avoided={0: 1.0}, move_s=0.0))
    assert free.replayed.changed == pytest.approx(1800 / 1860)
    assert free.stops_then == 0.0
    moved = what_if(run, RunChange(avoided={0: 1.0}))
    assert (free.replayed.changed - moved.replayed.changed) * 20_000 == pytest.approx(420.0 * 1800 / 1860)


def test_a_predictor_of_everything_avoids_everything_and_false_warnings_cost_moves() -> None:
    """Recall 1 at precision 1; at precision a half as many moves again."""
    every = what_if(RUN, RunChange(predictor=Predictor(1.0, 1.0)))
    half = what_if(RUN, RunChange(predictor=Predictor(1.0, 0.5)))
    none = what_if(RUN, RunChange(predictor=Predictor(0.0, 1.0)))
    assert every.stops_then == 0.0
    assert every.replayed.gain > half.replayed.gain > 0
    assert none.replayed.gain == pytest.approx(0.0)
    assert every.replayed.gain == pytest.approx(every.analytic.gain, abs=0.005)
    cost = 200 * 420.0 / RUN.wall_s
    assert every.replayed.changed - half.replayed.changed == pytest.approx(cost * every.replayed.changed, rel=0.01)


def test_half_the_failures_foretold_lies_between() -> None:
    """In expectation, without dice."""
    some = what_if(RUN, RunChange(predictor=Predictor(0.5, 1.0)))
    assert what_if(RUN, RunChange(predictor=Predictor(0.5, 1.0, lead_s=60.0))) == some
    late = what_if(RUN, RunChange(predictor=Predictor(0.5, 0.2, lead_s=59.0)))  # a save takes 60 s
    assert (late.replayed.gain, late.analytic.gain, late.stops_then) == (0.0, 0.0, len(RUN.stops))
    assert what_if(RUN, RunChange(predictor=Predictor(0.5, 1.0, lead_s=59.0), save_s=50.0)).stops_then < len(RUN.stops)
    assert some.stops_then == 100
    assert some.replayed.gain == pytest.approx(some.analytic.gain, abs=0.005)


def test_spares_cut_the_wait_down_to_the_least_that_was_measured() -> None:
    """Every stop takes a node out for a day: with none ready each waits, with fifty none does."""
    repairs = dict.fromkeys(range(200), 86_400.0)
    none, some, many = (what_if(RUN, RunChange(spares=n), repairs).replayed.changed for n in (0, 4, 50))
    assert none < some < many
    least = min(one.waiting for one in RUN.stops)
    waitless = replace(RUN, stops=tuple(replace(one, waiting=least) for one in RUN.stops))
    assert many == pytest.approx(what_if(waitless, RunChange()).replayed.as_was)
    with pytest.raises(ValueError, match="no outage of a node"):
        what_if(RUN, RunChange(spares=2))


def test_the_expected_wait_is_that_of_repairs_drawn() -> None:
    """Exponential repairs at random failures, against the walk through them."""
    dice = np.random.default_rng(4)
    times = np.cumsum(exponential(20_000.0, 40_000, seed=6))
    repairs = dice.exponential(86_400.0, 40_000)
    for spares in (0, 3, 6, 12):
        drawn = float(np.mean(waits_s(times.tolist(), repairs.tolist(), spares)))
        assert drawn == pytest.approx(expected_wait_s(1 / 20_000.0, 86_400.0, spares), rel=0.06, abs=30)


def test_failures_in_bursts_are_replayed_as_they_came() -> None:
    """The formula, which knows the mean alone, promises more harm than bursts do; the replay is the run's own."""
    times = [1_000.0 + 86_400.0 * day + 300.0 * n for day in range(10) for n in range(6)]
    run = history(tuple(stop(time) for time in times))
    told = what_if(run, RunChange(interval_s=900.0))
    assert told.replayed.as_was == pytest.approx(run.goodput, abs=0.01)
    assert told.analytic.as_was < told.replayed.as_was - 0.03


def test_the_interval_holds_the_long_runs_gain() -> None:
    """40 short histories: the gain over a long one lies within at least 34 of their intervals."""
    gaps = exponential(20_000.0, 200_000, seed=13)
    slow, quick = Policy(1800.0, 60.0, 660.0, detection_s=600.0), Policy(1800.0, 60.0, 660.0, detection_s=60.0)
    truth = simulate(quick, gaps).goodput - simulate(slow, gaps).goodput
    held = 0
    for seed in range(40):
        found = what_if(random_history(40, seed=seed), RunChange(detection_s=60.0)).replayed
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 34


def test_plain_values_carry_the_gains() -> None:
    """As JSON prints them."""
    told = what_if(RUN, RunChange(detection_s=60.0)).to_json()
    assert told["replayed"]["gain"] == pytest.approx(told["replayed"]["changed"] - told["replayed"]["as_was"])
    assert {"formula", "source", "run", "measured", "stops", "stops_then"} <= set(told)


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"save_s": -1.0}, {"spares": -1}, {"move_s": -1.0}])
def test_no_time_is_below_zero(wrong: dict[str, float]) -> None:
    """In words."""
    with pytest.raises(ValueError, match="a what-if needs"):
        RunChange(**wrong)  # type: ignore[arg-type]


def test_a_stop_at_the_very_end_leaves_an_interval() -> None:
    """The stretch after it has no length: drawn alone it would be nothing of nothing."""
    changed = what_if(history((stop(864_000.0),)), RunChange(interval_s=600.0)).replayed
    assert changed.low == changed.high == pytest.approx(changed.gain)

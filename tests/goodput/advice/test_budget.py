"""What a failure may cost, against the published table; what it costs, against the ledger's identity."""

import pytest
from made_history import history, random_history, stop

from goodput.advice.budget import budget
from goodput.formulas.ettr import minutes_allowed


@pytest.mark.parametrize(
    ("per_1000", "nodes", "at_95", "at_97"),
    [
        (2.3, 128, 245, 147),
        (2.3, 1_250, 25, 15),
        (2.3, 12_500, 2.5, 1.5),
        (3.8, 128, 148, 89),
        (3.8, 2_048, 9.3, 5.6),
        (6.5, 128, 87, 52),
        (6.5, 2_048, 5.4, 3.2),
        (6.5, 12_500, 0.9, 0.5),
    ],
)
def test_the_minutes_are_those_of_the_field(per_1000: float, nodes: int, at_95: float, at_97: float) -> None:
    """FIELD B4."""
    assert minutes_allowed(0.95, nodes, per_1000 / 1000) == pytest.approx(at_95, rel=0.06)
    assert minutes_allowed(0.97, nodes, per_1000 / 1000) == pytest.approx(at_97, rel=0.09)


def test_the_target_is_met_if_and_only_if_a_failure_costs_no_more_than_allowed() -> None:
    """The identity: allowed at the run's own goodput is what is spent."""
    run = random_history()
    assert budget(run, run.goodput).allowed_s == pytest.approx(budget(run, 0.9).spent_s)
    assert budget(run, run.goodput - 0.001).met
    assert not budget(run, run.goodput + 0.001).met


def test_what_is_spent_is_the_sum_of_its_parts() -> None:
    """Each part as the stops have it."""
    told = budget(random_history(), 0.95)
    assert sum(told.parts_s.values()) == pytest.approx(told.spent_s)
    assert (told.parts_s["detection"], told.parts_s["startup"], told.parts_s["checkpoint_load"]) == (600.0, 300.0, 60.0)
    assert told.parts_s["lost_work"] == pytest.approx(400.0)


def test_intervals_hold_the_figures_and_narrow_with_the_sample() -> None:
    """Of the rate by the exact interval, of the cost by drawing the stops again."""
    few, many = budget(random_history(8), 0.95), budget(random_history(200), 0.95)
    for told in (few, many):
        assert told.allowed_high_s is not None
        assert told.spent_low_s is not None
        assert told.spent_high_s is not None
        assert told.allowed_low_s < told.allowed_s < told.allowed_high_s
        assert told.spent_low_s < told.spent_s < told.spent_high_s
    assert few.allowed_high_s is not None
    assert many.allowed_high_s is not None
    assert few.allowed_high_s / few.allowed_low_s > 2 * many.allowed_high_s / many.allowed_low_s


def test_ten_times_the_nodes_allow_a_tenth() -> None:
    """The table over sizes, the run's own among them."""
    told = budget(random_history(nodes=1_250), 0.95)
    at = {row["nodes"]: row["allowed_s"] for row in told.at_scale}
    assert at[1_250] == pytest.approx(told.allowed_s)
    assert at[12_500] == pytest.approx(told.allowed_s / 10)
    assert told.to_json()["met"] == told.met


def test_a_run_that_was_never_interrupted_has_no_budget() -> None:
    """Nothing tells what a failure costs."""
    with pytest.raises(ValueError, match="never interrupted"):
        budget(history(()), 0.95)


def test_one_stop_has_no_interval_of_its_cost() -> None:
    """Nobody knows how it varies."""
    told = budget(history((stop(1000.0),)), 0.95)
    assert (told.spent_low_s, told.spent_high_s) == (None, None)


@pytest.mark.parametrize("wrong", [(1.1, 1, 0.1), (-0.1, 1, 0.1), (0.9, 0, 0.1), (0.9, 1, 0.0)])
def test_impossible_targets_are_refused(wrong: tuple[float, int, float]) -> None:
    """In words."""
    with pytest.raises(ValueError, match="a budget needs"):
        minutes_allowed(*wrong)

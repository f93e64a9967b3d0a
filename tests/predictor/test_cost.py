"""What acting costs and saves, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
from judged_rows import judged, random_fleet

from predictor.evaluate.cost import CostSettings, cost
from predictor.history.arrays import HOUR_MS


@pytest.mark.parametrize(("job_gpus", "precision"), [(10_000, 0.00704), (1_024, 0.06875)])
def test_the_break_even_precision_is_the_published_one(job_gpus: int, precision: float) -> None:
    """FIELD C: 0.7 % at 10,000 GPUs, 6.9 % at 1,024, for a soft cordon of 2.2 h and a quarter of an hour lost."""
    assert CostSettings(job_gpus=job_gpus).break_even == pytest.approx(precision)
    half = CostSettings(job_gpus=job_gpus, averted=0.5)
    assert half.break_even == pytest.approx(2 * precision)
    assert CostSettings(averted=0.0).break_even is None


# A failure costs 100 GPU-hours, an action 10.
TEN = CostSettings(job_gpus=100, mtt_checkpoint_h=0.75, restart_h=0.25, node_gpus=10, action_h=1.0)


def test_the_best_threshold_is_where_acting_stops_to_pay() -> None:
    """Two failures at the top, one far below: 17 rows more for one failure do not pay."""
    scores = [[0.9, 0.8, 0.7, *[0.2] * 16, 0.1]]
    hits = [[1, 0, 1, *[0] * 16, 1]]
    found = cost(judged(scores, hits), TEN)
    assert found["lost_without_acting_gpu_h"] == 300
    assert found["best"] == {
        "threshold": 0.7, "actions": 3, "failures_met": 2, "precision": pytest.approx(2 / 3),
        "saved_gpu_h": 200, "spent_gpu_h": 30, "net_gpu_h": 170,
    }  # fmt: skip
    assert found["curve"][-1]["actions"] == 20
    assert found["curve"][-1]["net_gpu_h"] == 100


def test_the_threshold_of_the_break_even_precision_needs_no_hindsight() -> None:
    """It takes scores at their word: all from 0.1 on."""
    found = cost(judged([[0.9, 0.1, 0.0999, 0.01]], [[0, 0, 0, 1]]), TEN)
    assert found["break_even_precision"] == pytest.approx(0.1)
    assert found["at_break_even"]["actions"] == 2
    assert found["at_break_even"]["net_gpu_h"] == -20
    assert cost(judged([[0.01, 0.02]], [[0, 1]]), TEN)["at_break_even"] is None


def test_an_outage_that_several_rows_foresee_is_averted_once() -> None:
    """Each of its rows is an action all the same."""
    twice = judged([[0.9, 0.1], [0.8, 0.1]], [[1, 0], [1, 0]])
    one = replace(
        twice, labels=replace(twice.labels, next_start_ms=np.where(twice.labels.positive, 36 * HOUR_MS, np.nan))
    )
    assert cost(twice, TEN)["best"]["failures_met"] == 2
    best = cost(one, TEN)["best"]
    assert (best["failures_met"], best["actions"]) == (1, 1)
    assert [point["failures_met"] for point in cost(one, TEN)["curve"]] == [1, 1, 1]


def test_where_no_threshold_pays_there_is_none() -> None:
    """Actions dearer than failures; or nothing to act on."""
    dear = replace(TEN, action_h=1000.0)
    found = cost(judged([[0.9, 0.1]], [[1, 0]]), dear)
    assert found["best"] is None
    empty = cost(judged([[0.9]], [[1]]).only(np.zeros(1, dtype=bool)), TEN)
    assert (empty["best"], empty["at_break_even"], empty["curve"]) == (None, None, [])


def test_no_other_threshold_is_better_than_the_best() -> None:
    """Against every threshold tried one by one."""
    fleet = random_fleet(50, 10, 3, levels=40, rate=0.05)
    best = cost(fleet, TEN)["best"]
    for threshold in np.unique(fleet.scores):
        rows = fleet.scores >= threshold
        assert (rows & fleet.labels.positive).sum() * 100 - rows.sum() * 10 <= best["net_gpu_h"] + 1e-9

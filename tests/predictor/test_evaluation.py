"""The figures, on fleets small enough to count by hand."""

from dataclasses import replace

import numpy as np
import pytest
from judged_rows import judged

from predictor.history.arrays import HOUR_MS
from predictor.model.skill import (
    calibration,
    discrimination,
    false_cordons,
    flagged_share,
    lead_times,
    outages_of,
    ratio,
)


def test_the_highest_scores_of_each_moment_are_flagged() -> None:
    """Per moment, rounded up; unknown cells take no place."""
    found = judged([[1, 2, 3, 4], [9, 8, 7, 6]], [[0] * 4] * 2, [[1, 1, 1, 0], [1, 1, 1, 1]])
    assert flagged_share(found, 0.25).tolist() == [0, 0, 1, 0, 1, 0, 0, 0]
    assert flagged_share(found, 0.5).sum() == 4


def test_equal_scores_share_the_places() -> None:
    """A constant score has no luck."""
    found = judged([[5, 5, 5, 7]], [[1, 0, 0, 0]])
    assert flagged_share(found, 0.5).tolist() == [pytest.approx(1 / 3)] * 3 + [1]
    constant = judged([[1.0] * 100] * 3, [[1] + [0] * 99] * 3)
    skill = discrimination(constant)
    assert skill["roc_auc"] == 0.5
    assert skill["recall_at_top"]["0.05"] == pytest.approx(0.05)
    assert skill["precision_at_top"]["0.05"] == pytest.approx(0.01)


def test_a_perfect_ranking_has_perfect_figures() -> None:
    """AUC and AP 1; recall limited by the places alone."""
    scores = np.arange(200.0).reshape(2, 100)
    hits = np.zeros((2, 100), dtype=int)
    hits[:, 98:] = 1
    skill = discrimination(judged(scores.tolist(), hits.tolist()))
    assert skill["recall_at_top"] == {"0.01": 0.5, "0.02": 1.0, "0.05": 1.0}
    assert skill["precision_at_top"] == {"0.01": 1.0, "0.02": 1.0, "0.05": 0.4}


def test_without_positives_figures_are_none() -> None:
    """Nothing to rank: no crash, no zero."""
    found = judged([[1, 2], [3, 4]], [[0, 0], [0, 0]])
    skill = discrimination(found)
    assert skill["roc_auc"] is skill["average_precision"] is skill["recall_at_top"]["0.01"] is None
    assert skill["precision_at_top"]["0.01"] == 0.0
    assert lead_times(found) == {"p10": None, "p50": None, "p90": None}


def test_without_rows_figures_are_none() -> None:
    """All censored."""
    found = judged([[1, 2]], [[1, 0]], [[0, 0]])
    assert discrimination(found)["precision_at_top"]["0.05"] is None
    assert false_cordons(found, 24.0) is None
    assert calibration(found) == []


def test_lead_time_runs_from_the_first_flag() -> None:
    """An outage that two moments foresee counts once, from the earlier."""
    scores = [[9.0] + [1.0] * 19] * 2
    found = judged(scores, [[1] + [0] * 19] * 2)
    starts = np.where(found.labels.positive, 36.0 * HOUR_MS, np.nan)
    one = replace(found, labels=replace(found.labels, next_start_ms=starts))
    assert lead_times(one)["p50"] == 36.0
    assert outages_of(one) == 1


def test_a_node_that_stays_flagged_is_one_cordon() -> None:
    """False when none of its moments is positive; per 1000 node-days of the rows judged."""
    scores = [[9, 1, 1], [9, 1, 1], [1, 9, 1], [9, 1, 1]]
    positive = [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    # Node 0 is cordoned on days 0-1 (true) and 3 (false), node 1 on day 2 (false).
    assert false_cordons(judged(scores, positive), 24.0) == pytest.approx(1000 * 2 / 12)
    assert false_cordons(judged(scores, positive), 12.0) == pytest.approx(1000 * 2 / 6)


def test_calibration_bins_hold_equal_numbers() -> None:
    """Lowest scores first."""
    found = calibration(judged([[0.1, 0.2, 0.3, 0.4]], [[0, 0, 0, 1]]), bins=2)
    assert [(round(b["score"], 3), b["observed"], b["rows"]) for b in found] == [(0.15, 0.0, 2), (0.35, 0.5, 2)]


def test_a_share_of_nothing_is_none() -> None:
    """Not 0, not an error."""
    assert ratio(1, 0) is None
    assert ratio(1, 4) == 0.25

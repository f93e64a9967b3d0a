"""Probabilities: do they mean what they say, and recall at a share of false alarms."""

from dataclasses import replace

import numpy as np
import pytest
from judged_rows import judged, random_fleet

from predictor.model.skill import probability_figures, recall_at_false_alarms, reliability


def test_saying_the_prevalence_to_all_has_no_skill_and_certainty_has_all() -> None:
    """0 and 1; certainty of the wrong is far below 0."""
    hits = [[1, 0, 0, 0]] * 3
    flat = probability_figures(judged([[0.25] * 4] * 3, hits))
    assert flat["brier"] == pytest.approx(0.25 * 0.75)
    assert flat["brier_skill"] == pytest.approx(0)
    assert flat["log_loss_skill"] == pytest.approx(0)
    assert probability_figures(judged(hits, hits))["brier_skill"] == pytest.approx(1)
    wrong = probability_figures(judged([[0, 1, 1, 1]] * 3, hits))
    assert wrong["brier"] == pytest.approx(1)
    assert wrong["log_loss_skill"] < -5


def test_recall_is_that_of_one_threshold_within_the_false_alarms() -> None:
    """Of 100 negatives one may be alarmed: the threshold stops before the second."""
    scores = np.concatenate([np.arange(100.0), [99.5, 98.5, 97.5, 3.0]])[None, :]
    hits = np.concatenate([np.zeros(100), np.ones(4)])[None, :]
    found = recall_at_false_alarms(judged(scores.tolist(), hits.tolist()))
    assert found == {"0.001": 0.25, "0.01": 0.5, "0.05": 0.75}


def test_equal_scores_cannot_be_parted_by_a_threshold() -> None:
    """A rule that fires for a tenth of the negatives has no recall at one hundredth."""
    scores = [[1.0] * 14 + [0.0] * 86]
    hits = [[1] * 4 + [0] * 96]
    assert recall_at_false_alarms(judged(scores, hits)) == {"0.001": 0, "0.01": 0, "0.05": 0}


def test_the_curve_parts_the_top_finely_and_loses_no_row() -> None:
    """Ascending; the parts hold all rows and positives, and the intervals hold what came."""
    fleet = random_fleet(200, 20, 1, levels=1000, rate=0.1)
    curve = reliability(fleet)
    assert sum(part["rows"] for part in curve) == 4000
    assert sum(part["positives"] for part in curve) == fleet.labels.positive.sum()
    said = [part["score"] for part in curve]
    assert said == sorted(said)
    assert curve[0]["rows"] > 20 * curve[-1]["rows"]
    assert all(part["interval"][0] <= part["observed"] <= part["interval"][1] for part in curve)


def test_equal_scores_stand_in_one_part() -> None:
    """A ranking of two values has two parts, a constant one has one."""
    two = reliability(judged([[0.5] * 5 + [0.1] * 95], [[1] * 5 + [0] * 95]))
    assert [(part["rows"], part["observed"]) for part in two] == [(95, 0.0), (5, 1.0)]
    assert len(reliability(judged([[0.1] * 50], [[1] + [0] * 49]))) == 1


def test_what_has_no_meaning_is_none() -> None:
    """No positive, or no row at all."""
    quiet = judged([[0.1, 0.2]], [[0, 0]])
    assert set(probability_figures(quiet).values()) == {None}
    assert set(recall_at_false_alarms(quiet).values()) == {None}
    assert reliability(quiet.only(np.zeros(2, dtype=bool))) == []
    certain = replace(quiet, labels=replace(quiet.labels, positive=np.ones(2, dtype=bool)))
    assert set(probability_figures(certain).values()) == {None}

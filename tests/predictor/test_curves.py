"""The lines of the report: few points, the same areas."""

import numpy as np
import pytest
from judged_rows import judged, random_fleet

from predictor.evaluate.report import curves
from predictor.model.skill import discrimination


def test_lines_keep_the_areas_of_the_figures() -> None:
    """Thinned to some hundred points, the area under the ROC line stays; precision starts and ends where it must."""
    fleet = random_fleet(300, 30, 1, levels=10_000, rate=0.05)
    found = curves(fleet, {"rules": np.floor(fleet.scores)})
    skill = discrimination(fleet)
    lines = found["rankings"]["model"]
    assert all(len(lines[name]) <= 160 for name in ("precision_recall", "roc"))
    false, right = np.array(lines["roc"]).T
    assert np.trapezoid(right, false) == pytest.approx(skill["roc_auc"], abs=0.002)
    recall, precision = np.array(lines["precision_recall"]).T
    assert recall[0] <= 0.01
    assert recall[-1] == 1
    assert precision[-1] == pytest.approx(fleet.labels.positive.mean(), abs=0.01)
    assert np.trapezoid(precision, recall) == pytest.approx(skill["average_precision"], abs=0.02)
    top = dict(lines["recall_at_top"])
    assert top[0.05] == skill["recall_at_top"]["0.05"]
    assert list(found["rankings"]) == ["model", "rules"]


def test_a_rule_of_two_answers_keeps_its_one_threshold() -> None:
    """Few points are all kept, and none is made up."""
    found = curves(judged([[1.0] * 2 + [0.0] * 8], [[1, 0, 1, 0, 0, 0, 0, 0, 0, 0]]), {})["rankings"]["model"]
    assert found["roc"] == [(0, 0), (0.125, 0.5), (1, 1)]
    assert found["precision_recall"] == [(0.5, 0.5), (1.0, 0.2)]


def test_leads_are_those_of_the_foreseen() -> None:
    """One an outage."""
    found = curves(judged([[9.0] + [1.0] * 19] * 2, [[1] + [0] * 19] * 2), {})
    assert found["leads_h"] == [12.0, 12.0]


def test_without_positives_there_are_no_lines() -> None:
    """Nothing to draw, no crash."""
    assert curves(judged([[1, 2]], [[0, 0]]), {}) == {"rankings": {}, "leads_h": []}

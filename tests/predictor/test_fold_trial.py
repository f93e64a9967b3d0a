"""What a model would have said of its own past: in order of time, and nothing where there is little to go by."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import START_MS, lesson

from predictor.dataset.folds import PURGE_MARGIN_H
from predictor.history.arrays import DAY_MS, HOUR_MS
from predictor.learning.choice import LEAST_OUTAGES, ORIGINS, origins, try_on_folds
from predictor.model.fit import FitSettings

QUICK = FitSettings(members=1, trees=15)


def test_what_is_judged_lies_a_purge_after_what_was_learned() -> None:
    """In every part; and the parts judged follow each other to the end."""
    whole = lesson(nodes=100, days=40)
    parts = origins(whole)
    assert len(parts) == len(ORIGINS)
    for learned, judged in parts:
        gap = whole.time_ms[judged].min() - whole.time_ms[learned].max()
        assert gap >= (whole.horizon_h + PURGE_MARGIN_H) * HOUR_MS
        assert not (learned & judged).any()
    assert not (parts[0][1] & parts[1][1]).any()
    assert (parts[0][1] | parts[1][1]).tolist() == (whole.time_ms >= whole.time_ms[parts[0][1]].min()).tolist()


@pytest.mark.parametrize("nodes", [1, 4])
def test_very_few_outages_are_no_trial(nodes: int) -> None:
    """Too few were judged even to compare the model with a rule."""
    few_of_them = lesson(nodes=nodes, days=40)
    assert origins(few_of_them) == []
    assert try_on_folds(few_of_them, QUICK) is None


def test_what_is_calibrated_and_compared_is_as_large_as_the_model() -> None:
    """The log-odds of a smaller fit lie elsewhere: no line of theirs fits the model's."""
    whole, full = lesson(nodes=100, days=40), replace(QUICK, members=3)
    trial = try_on_folds(whole, full)
    assert trial is not None
    learned, judged = origins(whole)[-1]
    forest = whole.only(learned).fit(full)
    said = forest.calibrated(forest.log_odds(whole.values[judged]))
    np.testing.assert_array_equal(trial.seen.log_odds[trial.last], said)


def test_rows_that_learn_without_positives_are_no_part() -> None:
    """All outages came late."""
    whole = lesson(nodes=100, days=40)
    late = whole.only(~whole.positive | (whole.time_ms > START_MS + 30 * DAY_MS))
    assert len(set(late.outages())) > LEAST_OUTAGES
    assert origins(late) == []


def test_a_trial_says_the_same_every_time() -> None:
    """To the last bit."""
    whole = lesson(nodes=100, days=40)
    one, other = (try_on_folds(whole, QUICK) for _ in range(2))
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.seen.log_odds, other.seen.log_odds)


def test_a_trial_judges_every_late_row_once() -> None:
    """Those of the last part are told apart."""
    whole = lesson(nodes=100, days=40)
    trial = try_on_folds(whole, QUICK)
    assert trial is not None
    assert len(set(trial.rows.tolist())) == len(trial.rows) == len(trial.seen.log_odds)
    assert whole.time_ms[trial.rows[trial.last]].min() > whole.time_ms[trial.rows[~trial.last]].max()
    np.testing.assert_array_equal(trial.seen.positive, whole.positive[trial.rows])

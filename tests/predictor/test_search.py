"""The search for settings: in order of time, bounded, and back to the defaults where there is little to go by."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import START_MS, lesson

from predictor.dataset.folds import PURGE_MARGIN_H
from predictor.history.arrays import DAY_MS, HOUR_MS
from predictor.learning import choice as searching
from predictor.learning.choice import LEAST_COMPARED, LEAST_OUTAGES, origins, search
from predictor.learning.training_set import TrainingSet
from predictor.model.fit import FitSettings
from predictor.model.forest import Forest

QUICK = FitSettings(members=1, trees=15)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates, one booster each."""
    monkeypatch.setattr(searching, "_TRIAL", {"members": 1})
    some = {"larger trees": {"leaves": 12}, "longer learning": {"trees": 60}}
    monkeypatch.setattr(searching, "CANDIDATES", some)


def test_what_is_judged_lies_a_purge_after_what_was_learned() -> None:
    """In every part; and the parts judged follow each other to the end."""
    whole = lesson(nodes=100, days=40)
    parts = origins(whole)
    assert len(parts) == len(searching.ORIGINS)
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
    assert search(few_of_them, QUICK) is None


def test_few_outages_leave_the_defaults() -> None:
    """A candidate that gains everything is not tried where chance could choose it; the model is tried all the same."""
    whole, hasty = lesson(nodes=150, days=40, sign=0.8), replace(QUICK, trees=3)
    number = np.full(len(whole.positive), -1)
    number[whole.positive] = whole.outages()
    late = np.unique(number[whole.positive & (whole.time_ms >= whole.time_ms.min() + 20 * DAY_MS)])
    gone = np.isin(number, late[LEAST_COMPARED + 2 :])
    trial = search(whole.only(~gone), hasty)
    assert trial is not None
    assert LEAST_COMPARED <= trial.outages < LEAST_OUTAGES
    assert trial.settings == hasty


def test_what_is_calibrated_and_compared_is_as_large_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log-odds of a smaller fit lie elsewhere: no line of theirs fits the model's."""
    monkeypatch.setattr(searching, "CANDIDATES", {})
    whole, full = lesson(nodes=100, days=40), replace(QUICK, members=3)
    trial = search(whole, full)
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


def test_nothing_to_gain_leaves_the_defaults() -> None:
    """Failures without any sign: no candidate is better by more than chance."""
    trial = search(lesson(nodes=100, days=40, sign=0.01), QUICK)
    assert trial is not None
    assert trial.settings == QUICK


def test_a_candidate_that_is_clearly_better_is_taken() -> None:
    """Learning for so short a time that the sign is hardly told: longer learning gains."""
    trial = search(lesson(nodes=150, days=40, sign=0.8), replace(QUICK, trees=3))
    assert trial is not None
    assert trial.settings.trees == 60


def test_that_a_setting_meets_the_rate_of_failures_is_no_merit() -> None:
    """The model is calibrated anyway: the same ranking, said of twice as many, gains nothing; a better one does."""
    whole = lesson(nodes=100, days=40, sign=0.8)
    trial = search(whole, QUICK)
    assert trial is not None
    bold = replace(trial, seen=replace(trial.seen, log_odds=trial.seen.log_odds + 0.7))
    assert searching._gain(whole, bold, trial) < 1e-3
    blind = replace(trial, seen=replace(trial.seen, log_odds=np.zeros(len(trial.rows))))
    assert searching._gain(whole, blind, trial) > 1


def test_a_candidate_that_changes_nothing_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are large already are not made large once more."""
    tried: list[int] = []
    fit = TrainingSet.fit

    def noted(lesson: TrainingSet, settings: FitSettings) -> Forest:
        tried.append(settings.leaves)
        return fit(lesson, settings)

    monkeypatch.setattr(TrainingSet, "fit", noted)
    monkeypatch.setattr(searching, "CANDIDATES", {"larger trees": {"leaves": 6}, "larger still": {"leaves": 8}})
    search(lesson(nodes=100, days=40), QUICK)
    assert len(tried) == 2 * 3  # as it is, larger still, and what was found once more
    assert tried[:4] == [6, 6, 8, 8]


def test_the_search_says_the_same_every_time() -> None:
    """To the last bit."""
    whole = lesson(nodes=100, days=40)
    one, other = (search(whole, QUICK) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.settings == other.settings
    np.testing.assert_array_equal(one.seen.log_odds, other.seen.log_odds)


def test_a_trial_judges_every_late_row_once() -> None:
    """Those of the last part are told apart."""
    whole = lesson(nodes=100, days=40)
    trial = search(whole, QUICK)
    assert trial is not None
    assert len(set(trial.rows.tolist())) == len(trial.rows) == len(trial.seen.log_odds)
    assert whole.time_ms[trial.rows[trial.last]].min() > whole.time_ms[trial.rows[~trial.last]].max()
    np.testing.assert_array_equal(trial.seen.positive, whole.positive[trial.rows])

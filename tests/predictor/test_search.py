"""The search for settings: in order of time, bounded, and back to the defaults where there is little to go by."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import START_MS, lesson

from predictor import search as searching
from predictor.folds import PURGE_MARGIN_H
from predictor.history import DAY_MS, HOUR_MS
from predictor.model import FitSettings
from predictor.search import LEAST_OUTAGES, origins, search

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


@pytest.mark.parametrize("nodes", [1, 8])
def test_few_outages_leave_the_defaults(nodes: int) -> None:
    """Too few were judged to tell settings apart."""
    few_of_them = lesson(nodes=nodes, days=40)
    assert origins(few_of_them) == []
    assert search(few_of_them, QUICK) is None


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

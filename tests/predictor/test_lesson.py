"""Lessons: which rows, and how much each counts."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import START_MS, lesson

from predictor.dataset.labels import Labels, TrainingSample
from predictor.history.arrays import DAY_MS
from predictor.learning.training_set import TrainingSet
from predictor.model import fit as fitting
from predictor.model.fit import FitSettings


def of_starts(starts_ms: list[float]) -> TrainingSet:
    """One node, one row a day; the starts of the outages that rows speak of, NaN for a negative row."""
    whole = lesson(nodes=1, days=len(starts_ms))
    some = whole.only(np.arange(2 * len(starts_ms)) % 2 == 0)
    starts = np.array(starts_ms)
    ones = np.ones(len(starts), bool)
    return replace(
        some, sample=TrainingSample(some.sample.rows, Labels(ones, ones, np.isfinite(starts), starts), 0.5, 12.0)
    )


def test_every_outage_counts_the_same_however_many_rows_speak_of_it() -> None:
    """Three rows of one and one row of another; together as much as four rows."""
    nan = float("nan")
    weights = of_starts([5, 5, 5, 9, nan, nan]).weights()
    assert weights.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2, 1, 1])


def test_a_row_stands_for_those_that_were_not_drawn() -> None:
    """Half of the negatives were: each stands for two."""
    assert of_starts([1, float("nan")]).stands_for().tolist() == [1, 2]


def test_outages_are_told_apart_by_node_and_start() -> None:
    """Two nodes that fail at the same moment are two outages."""
    whole = lesson(nodes=30, days=30)
    labels, rows = whole.sample.labels, whole.sample.rows
    pairs = {(int(n), float(s)) for n, s in zip(rows.node, labels.next_start_ms, strict=True) if np.isfinite(s)}
    assert len(set(whole.outages().tolist())) == len(pairs)


def test_a_part_keeps_rows_answers_and_features_together() -> None:
    """What a mask keeps."""
    whole = lesson(nodes=5, days=10)
    part = whole.only(whole.time_ms >= START_MS + 5 * DAY_MS)
    assert len(part.values) == len(part.positive) == len(part.time_ms) == 50
    assert part.column("gpu_temp_max_c").tolist() == whole.column("gpu_temp_max_c")[50:].tolist()


def test_recent_rows_rule_where_old_ones_count_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of failures doubled half-way: a short half-life says the new one."""
    whole = lesson(nodes=150, days=60)
    late = whole.time_ms >= START_MS + 30 * DAY_MS
    thinned = whole.only(late | ~whole.positive | (np.arange(len(late)) % 4 == 0))
    settings = FitSettings(members=1, trees=10)
    all_alike = thinned.fit(settings).probability(thinned.values).mean()
    monkeypatch.setattr(fitting, "VARIED", ((1, 6.0),))
    recent = thinned.fit(settings).probability(thinned.values).mean()
    assert all_alike == pytest.approx(thinned.positive.mean(), rel=0.15)
    assert recent == pytest.approx(whole.positive[late].mean(), rel=0.3)
    assert recent > 1.2 * all_alike

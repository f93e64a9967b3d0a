"""What a backtest refuses to report."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from fleet_store import day
from judged_rows import random_fleet

from predictor.dataset.folds import BacktestSettings, Fold
from predictor.evaluate.backtest import summarise
from predictor.evaluate.leakage import (
    LeakageError,
    SampledRows,
    check_features,
    check_look_ahead,
    check_model,
    check_purge,
    check_readings,
    doubts,
)
from predictor.history.arrays import Feature, Ints, Rows, every, to_ms
from predictor.model.skill import Judged

FOLD = Fold(day(30), day(31.5), day(40))
FEATURES = (Feature("past", "history"), Feature("future", "history"))
NAMES = ("past", "future")


def learned(*days: float) -> Ints:
    """Moments learned from."""
    return np.array([to_ms(day(d)) for d in days])


def test_learning_up_to_a_purge_before_the_test_is_honest() -> None:
    """A horizon and twelve hours; a fold that learned from nothing has seen nothing."""
    check_purge(FOLD, learned(10, 30), 24)
    check_purge(FOLD, learned(), 24)


@pytest.mark.parametrize(("last", "horizon_h"), [(30.01, 24), (31.5, 24), (35, 24), (30, 25)])
def test_learning_from_answers_of_the_judged_time_is_refused(last: float, horizon_h: int) -> None:
    """The fold, the moment and the remedy are named."""
    with pytest.raises(LeakageError, match=r"the fold judged from 2025-02-01T12:00.*--purge-h") as refused:
        check_purge(FOLD, learned(1, last, 5), horizon_h)
    assert f"{horizon_h + 12} h" in str(refused.value)


def sampled(rows: Rows, values: np.ndarray, positive: np.ndarray | None = None) -> SampledRows:
    """Rows of which none is positive, if not said otherwise."""
    return SampledRows(rows, values, FEATURES, np.zeros(len(rows), dtype=bool) if positive is None else positive)


def fleet_rows(moments: int = 12, size: int = 60) -> tuple[Rows, np.ndarray]:
    """Rows, and two features of them."""
    rows = every(size, [day(10) + timedelta(days=d) for d in range(moments)])
    past = (rows.time_ms % 1003 + rows.node).astype(np.float32)
    return rows, np.stack([past, np.where(rows.node % 3, past / 7, np.nan)], axis=1).astype(np.float32)


def test_features_that_stay_the_same_when_the_history_ends_are_honest() -> None:
    """Missing is as missing as before; a sample of the rows is asked, moment by moment."""
    rows, values = fleet_rows()
    asked: list[int] = []

    def again(some: Rows) -> tuple[tuple[str, ...], np.ndarray]:
        assert len(np.unique(some.time_ms)) == 1
        asked.append(len(some))
        at = np.flatnonzero(np.isin(rows.time_ms, some.time_ms) & np.isin(rows.node, some.node))
        return NAMES, values[at] * np.float32(1 + 1e-6)

    check_look_ahead(again, sampled(rows, values))
    assert len(asked) == 4  # the first and the last moment, and one of each third, of which the first is one
    assert sum(asked) < len(rows) / 3


@pytest.mark.parametrize("seed", range(5))
def test_what_is_asked_again_holds_every_positive_row_of_its_moments(seed: int) -> None:
    """A feature that knows the future only where an outage follows is found by a single row."""
    rows, values = fleet_rows(30, 300)
    positive = np.zeros(len(rows), dtype=bool)
    positive[np.random.default_rng(seed).integers(300, len(rows) - 300, 3)] = True
    places = sampled(rows, values, positive).places()
    asked = np.concatenate(places)
    assert positive[asked].sum() >= 1
    assert all(np.all(np.isin(np.flatnonzero(positive & (rows.time_ms == rows.time_ms[at[0]])), at)) for at in places)

    def again(some: Rows) -> tuple[tuple[str, ...], np.ndarray]:
        at = np.flatnonzero(np.isin(rows.time_ms, some.time_ms) & np.isin(rows.node, some.node))
        return NAMES, values[at] + positive[at, None]

    with pytest.raises(LeakageError, match="knows the future"):
        check_look_ahead(again, sampled(rows, values, positive))


@pytest.mark.parametrize("change", [lambda x: x + 1, lambda x: np.full_like(x, np.nan)], ids=["other", "missing"])
def test_a_feature_that_differs_when_the_history_ends_is_refused(change: object) -> None:
    """By its name, with both values and the moment."""
    rows, values = fleet_rows()

    def again(some: Rows) -> tuple[tuple[str, ...], np.ndarray]:
        at = np.flatnonzero(np.isin(rows.time_ms, some.time_ms) & np.isin(rows.node, some.node))
        found = values[at].copy()
        found[:, 1] = change(found[:, 1])  # type: ignore[operator]
        return NAMES, found

    with pytest.raises(LeakageError, match=r"feature 'future' knows the future: at 2025-01-11T00:00"):
        check_look_ahead(again, sampled(rows, values))


def test_features_are_compared_by_their_names() -> None:
    """A history that ends early has columns in another order, and lacks those that nobody had measured yet."""
    rows, values = fleet_rows()

    def again(some: Rows) -> tuple[tuple[str, ...], np.ndarray]:
        at = np.flatnonzero(np.isin(rows.time_ms, some.time_ms) & np.isin(rows.node, some.node))
        return ("new", "past"), values[at][:, [1, 0]]

    check_look_ahead(again, sampled(rows, values))


def test_a_feature_that_only_lacks_what_lies_long_ago_is_doubted() -> None:
    """A live score reads less of the past than a backtest: no leak, but the backtest's figures are not live ones."""
    rows, values = fleet_rows()

    def reading(missing: bool) -> Callable[[Rows], tuple[tuple[str, ...], np.ndarray]]:
        def compute(some: Rows) -> tuple[tuple[str, ...], np.ndarray]:
            at = np.flatnonzero(np.isin(rows.time_ms, some.time_ms) & np.isin(rows.node, some.node))
            return NAMES, np.where(missing, np.nan, values[at])

        return compute

    said = check_readings(reading(True), reading(False), sampled(rows, values))
    assert "'past' is not what a live score would see" in said[0]
    assert check_readings(reading(False), pytest.fail, sampled(rows, values)) == []
    with pytest.raises(LeakageError, match="'past' knows the future"):
        check_readings(reading(True), reading(True), sampled(rows, values))


def test_no_row_has_nothing_to_ask() -> None:
    """No crash."""
    rows, values = fleet_rows()
    none = np.zeros(0, dtype=np.int64)
    check_look_ahead(lambda some: (NAMES, values[: len(some)]), sampled(rows.only(none), values[:0]))


def two_features(fleet: Judged, leak: np.ndarray) -> np.ndarray:
    """An honest feature and a leak."""
    return np.stack([fleet.scores, leak], axis=1).astype(np.float32)


@pytest.mark.parametrize("sign", [1, -1])
def test_hours_to_the_next_outage_are_refused_as_a_feature(sign: int) -> None:
    """Low or high, known or missing for those that never fail."""
    fleet = random_fleet(100, 20, 1, rate=0.03)
    hours = np.random.default_rng(1).uniform(0, 24, len(fleet.scores))
    leak = sign * np.where(fleet.labels.positive, hours, 24 + 100 * hours)
    with pytest.raises(LeakageError, match=r"feature 'future' alone tells who fails with ROC AUC 1\.0000"):
        check_features(two_features(fleet, leak), fleet, FEATURES)
    check_features(two_features(fleet, fleet.scores), fleet, FEATURES)


@pytest.mark.parametrize("missing_for", [True, False])
def test_a_column_that_is_only_there_for_those_that_fail_is_refused(missing_for: bool) -> None:
    """Whether it is missing tells it, whatever its value is."""
    fleet = random_fleet(100, 20, 1, rate=0.03)
    leak = np.where(fleet.labels.positive == missing_for, np.nan, np.random.default_rng(1).random(len(fleet.scores)))
    with pytest.raises(LeakageError, match="'future'"):
        check_features(two_features(fleet, leak), fleet, FEATURES)


@pytest.mark.parametrize("value", [-100.0, 100.0])
def test_a_missing_value_may_go_to_either_side(value: float) -> None:
    """Those that fail are missing or far out on one side: a tree has both on its leaf."""
    fleet = random_fleet(100, 20, 1, rate=0.03)
    odd = np.where(np.arange(len(fleet.scores)) % 2, np.nan, value)
    leak = np.where(fleet.labels.positive, odd, np.random.default_rng(1).random(len(fleet.scores)))
    with pytest.raises(LeakageError, match="'future'"):
        check_features(two_features(fleet, leak), fleet, FEATURES)


def test_rows_without_an_answer_prove_nothing() -> None:
    """Unknown rows are left out, and a few positives may be luck."""
    fleet = random_fleet(100, 20, 1, rate=0.03)
    leak = np.where(fleet.labels.positive, 1.0, 0.0)
    few = np.flatnonzero(fleet.labels.positive)[19:]
    known = fleet.labels.known.copy()
    known[few] = False
    check_features(two_features(fleet, leak), replace(fleet, labels=replace(fleet.labels, known=known)), FEATURES)


def test_positives_of_few_nodes_prove_nothing() -> None:
    """Four lemons that stand out may be known by anything."""
    fleet = random_fleet(100, 20, 1)
    positive = fleet.node < 4
    lemons = replace(fleet, labels=replace(fleet.labels, positive=positive))
    check_model(replace(lemons, scores=positive.astype(float)))


def test_a_model_beyond_belief_is_refused() -> None:
    """And one that is only good is not; from 0.95 on it is doubted in the report."""
    fleet = random_fleet(100, 20, 2, rate=0.03)
    noise = np.random.default_rng(1).random(len(fleet.scores))
    check_model(replace(fleet, scores=fleet.labels.positive + 1.3 * noise))
    with pytest.raises(LeakageError, match="the model tells who fails with ROC AUC"):
        check_model(replace(fleet, scores=fleet.labels.positive + 0.99 * noise))
    assert doubts(0.949) == doubts(None) == []
    assert "0.961" in doubts(0.961)[0]


def honest_fleet(seed: int) -> Judged:
    """Some 120 failures of 250 nodes, and a score with an AUC of 0.84 whose top is mostly false alarms."""
    fleet = random_fleet(250, 60, seed, rate=0.008)
    noise = np.random.default_rng([seed, 1]).normal(size=len(fleet.scores))
    return replace(fleet, scores=noise + 1.4 * fleet.labels.positive)


# Share of the positives that a planted flag tells, and in how many of twelve fleets it must be doubted.
POWER = {0.0: (0, 0), 0.1: (9, 12), 0.3: (12, 12), 0.6: (12, 12), 0.9: (12, 12)}


@pytest.mark.parametrize("share", list(POWER))
def test_a_leak_of_a_part_of_the_failures_is_doubted(share: float) -> None:
    """As a feature, and as the model's score; fleets without one are not doubted (twelve fleets each)."""
    found = {"feature": 0, "model": 0}
    for seed in range(12):
        fleet = honest_fleet(seed)
        leak = fleet.labels.positive & (np.random.default_rng([seed, 2]).random(len(fleet.scores)) < share)
        found["feature"] += bool(check_features(two_features(fleet, leak), fleet, FEATURES, [fleet.scores]))
        told = replace(fleet, scores=fleet.scores + 8.0 * leak)
        report = summarise(told, {"history_count": fleet.scores}, BacktestSettings(), [])
        found["model"] += bool(report["doubts"])
    least, most = POWER[share]
    assert all(least <= doubted <= most for doubted in found.values()), found


def test_failures_that_repeat_are_not_doubted() -> None:
    """Where counting past outages finds them as purely, a feature that counts alike has seen nothing of the future."""
    fleet = honest_fleet(1)
    again = fleet.labels.positive.astype(float)
    again[np.flatnonzero(fleet.labels.positive)[::2]] = 0.0
    assert check_features(two_features(fleet, again), fleet, FEATURES, [again]) == []
    assert "'future' alone finds" in check_features(two_features(fleet, again), fleet, FEATURES)[0]


def test_what_was_left_out_of_a_sample_counts_among_what_a_feature_finds() -> None:
    """Of disks a few in a hundred negatives are learned from: what is pure among those need not be among all."""
    fleet = honest_fleet(1)
    chance = np.random.default_rng(3).random(len(fleet.scores))
    positive = fleet.labels.positive
    flag = np.where(positive, chance < 0.6, chance < 0.05 * positive.mean())
    values = two_features(fleet, flag.astype(float))
    assert "'future' alone finds" in check_features(values, fleet, FEATURES)[0]
    assert check_features(values, fleet, FEATURES, negative_share=0.02) == []
    pure = two_features(fleet, (positive & flag).astype(float))  # finds no negative: none was left out with it
    assert "'future' alone finds" in check_features(pure, fleet, FEATURES, negative_share=0.02)[0]

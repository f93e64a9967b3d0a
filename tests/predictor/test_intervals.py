"""Bootstrap intervals: a draw's figures are those of a fleet in which the drawn nodes stand several times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_rows import random_fleet

from predictor.dataset.labels import Labels
from predictor.model.skill import (
    TOPS,
    Judged,
    discrimination,
    drawn_figures,
    interval,
    node_weights,
    seen_from,
    with_intervals,
)


def repeated(judged: Judged, weights: np.ndarray) -> Judged:
    """The same fleet with each node as often as it was drawn."""
    times = weights[judged.node].astype(int)
    keep = np.repeat(np.arange(len(judged.node)), times)
    labels = judged.labels
    parts = (labels.at_risk, labels.known, labels.positive, labels.next_start_ms)
    return Judged(judged.time_ms[keep], judged.node[keep], judged.scores[keep], Labels(*(p[keep] for p in parts)))


@given(st.integers(2, 25), st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([2, 6, 1000]))
def test_a_draw_is_the_fleet_with_its_nodes_repeated(nodes: int, moments: int, seed: int, levels: int) -> None:
    """Every figure, by the code that has no weights and that scikit-learn has a part in."""
    judged = random_fleet(nodes, moments, seed, levels)
    weights = node_weights(nodes, 3, seed)
    drawn = drawn_figures(judged, weights)
    for draw in range(3):
        plain = discrimination(repeated(judged, weights[:, draw]))
        if plain["roc_auc"] is None:
            continue
        assert drawn["roc_auc"][draw] == pytest.approx(plain["roc_auc"])
        assert drawn["average_precision"][draw] == pytest.approx(plain["average_precision"])
        for figure in ("recall_at_top", "precision_at_top"):
            for top in TOPS:
                assert drawn[f"{figure} {top}"][draw] == pytest.approx(plain[figure][str(top)])


def test_every_draw_has_as_many_nodes_as_the_random_fleet() -> None:
    """With replacement; the same seed draws the same."""
    weights = node_weights(50, 20, 3)
    assert weights.shape == (50, 20)
    assert (weights.sum(axis=0) == 50).all()
    assert 0 in weights
    assert (weights == node_weights(50, 20, 3)).all()
    assert (weights != node_weights(50, 20, 4)).any()


def test_intervals_hold_the_figure_and_narrow_with_more_nodes() -> None:
    """Four times the nodes, about half the width."""
    widths = {}
    for nodes in (60, 240):
        judged = random_fleet(nodes, 10, 1)
        found = with_intervals(judged, {}, None)["intervals"]
        plain = discrimination(judged)
        for figure in ("roc_auc", "average_precision"):
            low, high = found[figure]
            assert low < plain[figure] < high
        low, high = found["recall_at_top"]["0.05"]
        assert low <= plain["recall_at_top"]["0.05"] <= high
        widths[nodes] = found["roc_auc"][1] - found["roc_auc"][0]
    assert 1.4 < widths[60] / widths[240] < 3


def test_rows_of_one_node_are_not_separate_evidence() -> None:
    """Ten times the same rows of the same nodes: the interval stays as wide."""
    once = random_fleet(60, 4, 2)
    many = repeated(once, np.full(60, 10))
    width = [np.diff(with_intervals(found, {}, None)["intervals"]["roc_auc"])[0] for found in (once, many)]
    assert width[1] == pytest.approx(width[0], rel=0.05)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """A ranking without skill has AUC 0.5: some 95 of 100 intervals hold it."""
    held = 0
    for seed in range(60):
        low, high = with_intervals(random_fleet(80, 3, seed, 1000, skill=0.0), {}, None)["intervals"]["roc_auc"]
        held += low <= 0.5 <= high
    assert held >= 52


def test_a_ranking_is_compared_on_the_same_draws() -> None:
    """A baseline equal to the model has a gain of nothing at all; a useless one is beaten for sure."""
    judged = random_fleet(80, 6, 5)
    ranks = {"same": judged.scores, "nothing": np.zeros(len(judged.scores))}
    same = with_intervals(judged, ranks, "same")
    assert same["gain"]["average_precision"] == [0.0, 0.0]
    assert same["baselines"]["same"] == same["intervals"]
    assert with_intervals(judged, ranks, "nothing")["gain"]["roc_auc"][0] > 0


def test_the_power_of_a_study_is_what_four_of_five_would_have_seen() -> None:
    """Of studies whose true gain is so large, the interval lies above 0 in some 80 of 100."""
    random = np.random.default_rng(4)
    error = 0.01
    gain = seen_from(random.normal(0.0, error, 4000))
    assert gain == pytest.approx(2.8 * error, rel=0.05)
    sure = [interval(random.normal(random.normal(gain, error), error, 400))[0] > 0 for _ in range(400)]
    assert np.mean(sure) == pytest.approx(0.8, abs=0.06)
    assert seen_from(np.array([np.nan, np.nan, np.nan, 1.0])) is None


def test_without_positives_there_are_no_intervals() -> None:
    """None, beside figures that are None."""
    judged = random_fleet(10, 2, 1)
    quiet = replace(judged, labels=replace(judged.labels, positive=np.zeros(20, dtype=bool)))
    assert with_intervals(quiet, {"rules": quiet.scores}, None) == {
        "bootstrap": None, "intervals": None, "baselines": {"rules": None}, "gain": None,
        "seen_from": None,
    }  # fmt: skip


def test_a_figure_that_most_draws_cannot_give_has_no_interval() -> None:
    """Of a single failing node a third of the draws know nothing; of draws that are mostly empty we say nothing."""
    assert interval(np.array([np.nan, np.nan, np.nan, 1.0])) is None
    assert interval(np.array([np.nan, 1.0, 1.0, 1.0])) == [1.0, 1.0]

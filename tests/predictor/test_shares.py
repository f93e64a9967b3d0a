"""Trees and an additive hazard together: each by what it was worth on the same rows, and served as it was judged."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import lesson

from predictor.hazard.blend import HazardBlend, loaded, log_hazard, stored
from predictor.hazard.prior import packaged
from predictor.history.arrays import Bools, Floats
from predictor.learning.choice import baseline_rates, learn, origins, try_on_folds
from predictor.learning.shares import (
    BLEND,
    HAZARD,
    PRIOR,
    TREES,
    WORTHS,
    FoldHazards,
    MeanShare,
    additive,
    blended,
    compared,
    expected_rate,
    fold_hazards,
    known_before,
    outages_of,
)
from predictor.learning.training_set import TrainingSet
from predictor.live.reasons import explain, references
from predictor.model.fit import FitSettings, HeldOutScores
from predictor.model.forest import digest, sigmoid
from predictor.model.local_rates import PUBLISHED

QUICK = FitSettings(members=2, trees=40)


@pytest.fixture(scope="module")
def whole() -> TrainingSet:
    """A fleet whose failures have a sign."""
    return lesson(nodes=120, days=40, sign=0.5)


def test_the_mean_serves_and_the_card_says_what_each_was_worth(whole: TrainingSet) -> None:
    """How much the hazard counts, each one's log loss, and of those beside the trees their gain on them."""
    learned = learn(whole, QUICK, packaged())
    assert learned.kind == "blend"
    assert isinstance(learned.model, HazardBlend)
    assert 0 < learned.model.weight < 1
    assert learned.why.startswith("trees and additive hazard: ahead of both baselines")
    assert learned.why.endswith(f"the additive hazard counts {learned.model.weight:.0%}")
    losses = {name: learned.figures[name]["log_loss"] for name in (TREES, HAZARD, BLEND, PRIOR)}
    assert "over_trees" not in learned.figures[TREES]
    for name in (HAZARD, BLEND, PRIOR):
        low, high = learned.figures[name]["over_trees"]["log_loss"]
        assert low <= losses[TREES] - losses[name] <= high
        low, high = learned.figures[name]["over_trees"]["average_precision"]
        gain = learned.figures[name]["average_precision"] - learned.figures[TREES]["average_precision"]
        assert low <= gain <= high


def test_without_a_prior_there_are_trees_alone(whole: TrainingSet) -> None:
    """Nor where the prior knows nothing of the horizon: both learn the same."""
    for other, prior in ((whole, None), (replace(whole, horizon_h=48), packaged())):
        learned = learn(other, QUICK, prior)
        assert learned.kind == "gbt"
        assert not learned.figures.keys() & {HAZARD, BLEND, PRIOR}
        assert known_before(other, prior) is None
        assert expected_rate(other, None) is PUBLISHED


def hazards_of(trees: Floats, added: Floats, positive: Bools) -> FoldHazards:
    """Log-odds that both told of rows, learned from a hundred outages."""
    seen = HeldOutScores(trees, positive, np.ones(len(positive)))
    logs = log_hazard(added)
    return FoldHazards(log_hazard(trees), logs, logs, np.full(len(positive), 100), seen)


def test_who_knew_the_answer_counts_more(whole: TrainingSet) -> None:
    """Of scores that tell and scores that do not the former get nearly all, whoever gives them; of equals neither."""
    positive, rows = whole.positive, np.arange(len(whole.positive))
    blind, seeing = np.full(len(rows), -4.0), np.where(positive, 0.0, -5.0)
    for_hazard, for_trees, equal = (
        MeanShare.of(hazards_of(trees, added, positive), outages_of(whole))
        for trees, added in ((blind, seeing), (seeing, blind), (blind, blind))
    )
    assert for_hazard.weight(100) > 0.7
    assert for_trees.weight(100) < 0.05
    np.testing.assert_allclose(equal.chance, 1 / len(WORTHS))
    once, often = (MeanShare.of(hazards_of(blind, seeing, positive), outages).chance[-1] for outages in (1, 10))
    assert 1 / len(WORTHS) < once < often, "an outage counts once, however many rows speak of it"
    assert for_hazard.chance.sum() == pytest.approx(1.0)
    trials = hazards_of(blind, seeing, positive).trials(for_hazard)
    assert compared(whole, rows, trials)[BLEND]["over_trees"]["log_loss"][0] > 0


def test_the_trees_count_more_with_each_outage_that_they_learned_from(whole: TrainingSet) -> None:
    """A prior is worth so many outages, not a share for ever."""
    positive = whole.positive
    share = MeanShare.of(hazards_of(np.full(len(positive), -4.0), np.full(len(positive), -4.0), positive), 10)
    few, some, many = share.weight(np.array([10, 100, 10_000])).tolist()
    assert few > 2 * some > 20 * many > 0
    assert share.weight(100) == some


def test_each_is_tried_with_nothing_later_than_the_trees(whole: TrainingSet) -> None:
    """Answers after the last origin change no score of the rows before it: what is judged was not learned."""
    trial = try_on_folds(whole, QUICK)
    assert trial is not None
    known = known_before(whole, packaged())
    last = whole.time_ms >= whole.time_ms[trial.rows[trial.last]].min()
    labels = whole.sample.labels
    turned = replace(
        labels, positive=labels.positive & ~last, next_start_ms=np.where(last, np.nan, labels.next_start_ms)
    )
    other = replace(whole, sample=replace(whole.sample, labels=turned))
    assert known is not None
    parts = origins(whole)
    one, two = (fold_hazards(rows, trial.seen, parts, known) for rows in (whole, other))
    np.testing.assert_array_equal(one.added, two.added)
    np.testing.assert_array_equal(one.alone, two.alone)
    np.testing.assert_array_equal(one.outages, two.outages)


@pytest.mark.parametrize("weight", [None, 0.0, 0.2, 0.9])
def test_what_serves_is_what_was_judged(whole: TrainingSet, weight: float | None) -> None:
    """Stored and read again, alone or among others, to the last bit; its reasons add up to it."""
    known = known_before(whole, packaged())
    assert known is not None
    model = additive(whole, known) if weight is None else blended(whole, whole.fit(QUICK), known, weight)
    blob = stored(model)
    again = loaded(blob, digest(blob))
    rows = whole.values[:300]
    together = model.probability(rows)
    np.testing.assert_array_equal(again.probability(rows), together)
    np.testing.assert_array_equal([again.probability(rows[at : at + 1])[0] for at in range(len(rows))], together)
    explained = explain(again, rows, whole.features, references(rows, whole.features))
    np.testing.assert_array_equal(explained.probability, together)
    np.testing.assert_allclose(explained.base + explained.parts.sum(axis=0), together, rtol=0, atol=1e-9)


def test_the_mean_is_that_of_the_models_that_serve(whole: TrainingSet) -> None:
    """What the folds judge of the blend is what the blend of the same trees says."""
    known = known_before(whole, packaged())
    assert known is not None
    everything = np.ones(len(whole.positive), dtype=np.bool_)
    trees = whole.fit(QUICK)
    of_trees = HeldOutScores(trees.calibrated(trees.log_odds(whole.values)), whole.positive, whole.stands_for())
    found = fold_hazards(whole, of_trees, [(everything, everything)], known)
    assert set(found.outages) == {outages_of(whole)}
    share = MeanShare.of(found, outages_of(whole))
    weight = float(share.weight(outages_of(whole)))
    said = blended(whole, trees, known, weight).probability(whole.values)
    np.testing.assert_allclose(sigmoid(found.trials(share)[BLEND].log_odds), said, rtol=1e-9)
    alone = additive(whole, known).probability(whole.values)
    np.testing.assert_allclose(sigmoid(found.trials(share)[PRIOR].log_odds), alone, rtol=1e-9)


@pytest.mark.parametrize("weight", [0.2, 0.5])
def test_the_mean_tells_as_many_failures_as_its_parts(weight: float) -> None:
    """A mean of logarithms is lower than the mean: where the parts differ it is raised; each alone is left."""
    trees, added = np.array([-6.0, -3.0, -6.0, -4.0]), np.array([-3.0, -6.0, -4.0, -6.0])
    hazards = hazards_of(trees, added, np.zeros(4, dtype=bool))
    both = hazards.mean(weight).log_odds
    assert hazards.level(0.0) == hazards.level(1.0) == 0.0
    raised = sigmoid(both + hazards.level(weight)).sum()
    parts = weight * sigmoid(added).sum() + (1 - weight) * sigmoid(trees).sum()
    assert sigmoid(both).sum() < 0.85 * parts
    assert raised == pytest.approx(parts, rel=0.02)


def test_a_prior_expects_more_of_nodes_that_show_signs(whole: TrainingSet) -> None:
    """The rate towards which a baseline's groups are drawn follows the nodes, and is told."""
    known = known_before(whole, packaged())
    ill = whole.values.copy()
    ill[:, [feature.name for feature in whole.features].index("row_remap_7d")] = 3
    usual, more = expected_rate(whole, known), expected_rate(replace(whole, values=ill), known)
    assert 1e-4 < usual.per_day < more.per_day < 1.0
    assert usual.outages == PUBLISHED.outages
    rates = baseline_rates(whole, whole.baselines["history_count"], more)
    assert "which the prior expects of nodes like these" in rates.words


def test_with_too_few_outages_the_prior_serves() -> None:
    """It says so; what nodes of this site show moves nobody's score then. History serves where there is no prior."""
    few = lesson(nodes=5, days=40)
    learned = learn(few, QUICK, packaged())
    assert learned.kind == "prior"
    assert learned.why.startswith("prior of other clusters: too few outages to show")
    known = known_before(few, packaged())
    assert known is not None
    alone = additive(few, known).probability(few.values)
    np.testing.assert_array_equal(learned.model.probability(few.values), alone)
    assert learn(few, QUICK).kind == "history"


def test_one_node_that_shows_what_it_likes_moves_no_expected_rate(whole: TrainingSet) -> None:
    """The median of nodes: a baseline's rates are everybody's."""
    known = known_before(whole, packaged())
    loud = whole.values.copy()
    signs = [at for at, feature in enumerate(whole.features) if feature.name.endswith("_7d")]
    loud[np.ix_(whole.sample.rows.node == 3, signs)] = 1e6
    usual, moved = (expected_rate(one, known) for one in (whole, replace(whole, values=loud)))
    assert moved.per_day == pytest.approx(usual.per_day, rel=0.02)

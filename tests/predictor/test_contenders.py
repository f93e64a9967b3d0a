"""What may serve beside the trees: tried on the same rows, chosen by what came, and served as it was judged."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import lesson

from predictor.hazard.blend import loaded, log_hazard, log_odds_of, stored
from predictor.hazard.prior import packaged
from predictor.learning.choice import baseline_rates, learn, origins, try_on_folds
from predictor.learning.contenders import (
    BLEND,
    CONTENDERS,
    HAZARD,
    PRIOR,
    TREES,
    best_of,
    contenders,
    expected_rate,
    known_before,
    level_of,
    made,
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


def test_the_best_of_the_folds_serves_and_the_card_says_by_how_much(whole: TrainingSet) -> None:
    """Its log loss is the least; those beside the trees have their gain on them, with an interval."""
    learned = learn(whole, QUICK, packaged())
    losses = {name: learned.figures[name]["log_loss"] for name in CONTENDERS}
    best = min(losses, key=lambda name: losses[name])
    assert learned.kind == CONTENDERS[best].kind
    assert learned.why.startswith(f"{CONTENDERS[best].words}: ahead of both baselines")
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


def test_who_is_surely_better_is_chosen(whole: TrainingSet) -> None:
    """Scores that know the answer win over those that do not, whoever gives them; where all are equal the trees do."""
    positive = whole.positive
    rows = np.arange(len(positive))
    blind = HeldOutScores(np.full(len(rows), -4.0), positive, np.ones(len(rows)))
    seeing = replace(blind, log_odds=np.where(positive, 0.0, -5.0))
    for name in (HAZARD, BLEND, PRIOR):
        best, found = best_of(whole, rows, {TREES: blind, name: seeing})
        assert best == name
        assert found[name]["over_trees"]["log_loss"][0] > 0
        assert best_of(whole, rows, {TREES: seeing, name: blind})[0] == TREES
        assert best_of(whole, rows, {TREES: blind, name: blind})[0] == TREES


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
    parts = origins(whole)
    one, two = (contenders(rows, trial.seen, parts, known) for rows in (whole, other))
    for name in (HAZARD, PRIOR):
        np.testing.assert_array_equal(one[name].log_odds, two[name].log_odds)


@pytest.mark.parametrize("name", [HAZARD, BLEND, PRIOR])
def test_what_serves_is_what_was_judged(whole: TrainingSet, name: str) -> None:
    """Stored and read again, alone or among others, to the last bit; its reasons add up to it."""
    known = known_before(whole, packaged())
    assert known is not None
    model = made(name, whole, whole.fit(QUICK), known)
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
    found = contenders(whole, of_trees, [(everything, everything)], known)
    for name in (HAZARD, BLEND, PRIOR):
        said = made(name, whole, trees, known).probability(whole.values)
        np.testing.assert_allclose(sigmoid(found[name].log_odds), said, rtol=1e-9)


def test_the_mean_tells_as_many_failures_as_its_parts(whole: TrainingSet) -> None:
    """A mean of logarithms is lower than the mean: where the parts differ it is raised; each alone is left."""
    weight, positive = np.ones(4), np.zeros(4, dtype=bool)
    said = {TREES: [-6.0, -3.0, -6.0, -4.0], HAZARD: [-3.0, -6.0, -4.0, -6.0]}
    trials = {name: HeldOutScores(np.array(one), positive, weight) for name, one in said.items()}
    both = log_odds_of(0.5 * sum(log_hazard(one.log_odds) for one in trials.values()))
    trials[BLEND] = HeldOutScores(both, positive, weight)
    assert level_of(TREES, trials) == level_of(HAZARD, trials) == 0.0
    raised = sigmoid(both + level_of(BLEND, trials)).sum()
    parts = np.mean([sigmoid(trials[name].log_odds).sum() for name in (TREES, HAZARD)])
    assert sigmoid(both).sum() < 0.7 * parts
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
    alone = made(PRIOR, few, few.fit(QUICK), known).probability(few.values)
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

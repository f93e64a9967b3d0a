"""What serves: trees that beat both baselines, or the better baseline, in words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lessons import lesson

from predictor.learning import choice as choosing
from predictor.learning.choice import LEAST_OUTAGES, baseline_rates, choose, learn, try_on_folds
from predictor.learning.training_set import TrainingSet
from predictor.live.reasons import explain, references
from predictor.model.baselines import BASELINES, LINK_BASELINES, Baseline, history_count, rules
from predictor.model.fit import SHARPER, FitSettings, TooFewPositivesError
from predictor.model.forest import digest, from_bytes, to_bytes

QUICK = FitSettings(members=2, trees=40)
HISTORY, RULES = BASELINES["history_count"], BASELINES["rules"]


def figures(trees: tuple[float, float], history: tuple[float, float], fired: tuple[float, float]) -> dict[str, Any]:
    """Average precision and recall of each, over a hundred outages."""
    reached = {"trees": trees, "history_count": history, "rules": fired}
    return {name: {"average_precision": ap, "recall": recall, "outages": 100} for name, (ap, recall) in reached.items()}


def test_trees_serve_where_they_beat_both() -> None:
    """The better baseline is named."""
    unbeaten, why = choose(figures((0.06, 0.4), (0.03, 0.3), (0.01, 0.2)))
    assert unbeaten is None
    assert why == (
        "trees: ahead of both baselines on the last 2 folds: "
        "AP 0.060 against 0.030, recall in the top 5% 0.40 against 0.30 (history only)"
    )


def test_a_baseline_that_is_not_beaten_serves_and_says_so() -> None:
    """By average precision."""
    unbeaten, why = choose(figures((0.031, 0.3), (0.035, 0.33), (0.01, 0.2)))
    assert unbeaten is HISTORY
    assert why.startswith("history only: the model did not beat it on the last 2 folds: AP 0.031 against 0.035, recall")
    assert choose(figures((0.031, 0.3), (0.01, 0.3), (0.04, 0.3)))[0] is RULES
    assert choose(figures((0.031, 0.3), (0.05, 0.3), (0.04, 0.3)))[0] is HISTORY
    assert choose(figures((0.031, 0.3), (0.031, 0.3), (0.01, 0.3)))[0] is HISTORY


def test_a_recall_that_is_lower_beyond_chance_is_not_enough() -> None:
    """One standard error of a hundred outages is 0.05."""
    unbeaten, why = choose(figures((0.06, 0.36), (0.03, 0.4), (0.01, 0.2)))
    assert unbeaten is None
    assert "0.36 against 0.40, a difference that chance explains (history only)" in why
    assert choose(figures((0.06, 0.34), (0.03, 0.4), (0.01, 0.2)))[0] is HISTORY


def test_trees_are_learned_where_failures_have_signs() -> None:
    """Chosen on rows that they had not seen, and better there."""
    learned = learn(lesson(nodes=120, days=40, sign=0.5), QUICK)
    assert learned.kind == "gbt"
    assert learned.settings == QUICK
    assert learned.figures["trees"]["average_precision"] > learned.figures["history_count"]["average_precision"]


def misled(whole: TrainingSet) -> TrainingSet:
    """A sign that told much in the first third, and from then on is shown by those that do not fail."""
    late = whole.time_ms >= np.quantile(whole.time_ms, 0.35)
    column = [feature.name for feature in whole.features].index("hardware_xid_1d")
    values = whole.values.copy()
    wrong = ~whole.positive & (np.random.default_rng(3).random(len(values)) < 0.2)
    values[:, column] = np.where(late, wrong, values[:, column])
    return replace(whole, values=values)


def test_precision_is_that_of_all_rows_where_negatives_were_drawn() -> None:
    """A fifth of them was kept: it is said as if none were missing."""
    whole = lesson(nodes=120, days=40, sign=0.5)
    kept = whole.positive | (np.arange(len(whole.positive)) % 5 == 0)
    part = whole.only(kept)
    drawn = replace(part, sample=replace(part.sample, negative_share=0.2))
    of_all, of_drawn = (learn(one, QUICK).figures["rules"]["average_precision"] for one in (whole, drawn))
    assert of_drawn == pytest.approx(of_all, rel=0.15)


def test_history_alone_serves_where_nothing_else_tells() -> None:
    """The forest asks nothing else, and ranks as the count does."""
    whole = misled(lesson(nodes=120, days=40, sign=0.6, lemon=0.6))
    learned = learn(whole, QUICK)
    assert learned.kind == "history"
    assert learned.why.startswith("history only: the model did not beat it")
    asked = {whole.features[column].group for column in learned.model.feature}
    assert asked == {"outages"}
    said, count = learned.model.probability(whole.values), history_count(whole)
    assert said[count > 0].min() > said[count == 0].max()


@pytest.mark.parametrize("baseline", [HISTORY, RULES, LINK_BASELINES["rules"]], ids=lambda one: one.words)
def test_a_baseline_is_stored_and_explained_like_any_model(baseline: Baseline) -> None:
    """It serves in the trees' place."""
    whole = lesson(nodes=60, days=40, sign=0.4, lemon=0.5)
    forest = baseline_rates(whole, baseline).forest
    blob = to_bytes(forest)
    explained = explain(
        from_bytes(blob, digest(blob)), whole.values, whole.features, references(whole.values, whole.features)
    )
    np.testing.assert_array_equal(explained.probability, forest.probability(whole.values))
    assert explained.probability.mean() == pytest.approx(whole.positive.mean(), rel=0.3)


def test_rules_know_only_whether_a_sign_fired() -> None:
    """How often does not count."""
    whole = lesson(nodes=60, days=40)
    column = [feature.name for feature in whole.features].index("hardware_xid_7d")
    values = whole.values.copy()
    values[:, column] = whole.column("hardware_xid_1d") * np.where(np.arange(len(values)) % 2, 1, 40)
    fired = replace(whole, values=values)
    said = baseline_rates(fired, RULES).forest.probability(values)
    assert len(set(said.tolist())) == 2
    assert said[rules(fired) > 0].min() > 3 * said[rules(fired) == 0].max()


def test_a_baseline_whose_signs_never_fired_says_the_base_rate() -> None:
    """Disks have no Xids."""
    whole = lesson(nodes=60, days=40)
    said = baseline_rates(whole, RULES).forest.probability(whole.values)
    assert said == pytest.approx(np.full(len(said), whole.positive.mean()), rel=0.1)


@pytest.mark.parametrize("lemon", [0.0, 1.0])
def test_with_too_few_outages_to_compare_history_serves(lemon: float, kind: str = "history") -> None:
    """Trees that were never shown to be better serve nobody, and no rule is chosen by chance."""
    few_of_them = lesson(nodes=5, days=40, sign=0.4 * (1 - lemon), lemon=lemon)
    column = [feature.name for feature in few_of_them.features].index("hardware_xid_7d")
    few_of_them.values[:, column] = few_of_them.column("hardware_xid_1d")
    learned = learn(few_of_them, QUICK)
    assert learned.kind == kind
    outages = len(set(few_of_them.outages().tolist()))
    words = f"{kind} only: too few outages to show that what is learned here is better "
    words += f"({outages} in all; the last 2 folds need 8"
    assert "drawn towards 3.8 outages per 1000 node-days" in learned.why
    assert learned.why.startswith(words)
    assert learned.figures == {}
    assert (learned.model.slope, learned.settings) == (1.0, QUICK)
    asked = {few_of_them.features[at].name for at in learned.model.feature}
    assert asked <= set(BASELINES["history_count" if kind == "history" else "rules"].columns)


def test_links_are_held_against_their_own_rules() -> None:
    """Flaps that foretell all: the count of them is named and serves, as often as it counts."""
    whole = lesson(nodes=120, days=40, sign=0.9)
    column = [feature.name for feature in whole.features].index("link_flap_7d")
    whole.values[:, column] = 3.0 * whole.positive
    links = replace(whole, baselines=LINK_BASELINES)
    learned = learn(links, QUICK)
    assert learned.figures["rules"]["average_precision"] == 1.0
    assert (learned.kind, learned.why.partition(":")[0]) == ("rules", "flaps of 7 days only")
    assert {whole.features[at].name for at in learned.model.feature} == {"link_flap_7d"}


def test_too_few_positives_are_refused() -> None:
    """As by `fit`."""
    with pytest.raises(TooFewPositivesError):
        learn(lesson(nodes=2, days=10), QUICK)


@pytest.fixture
def bold() -> tuple[TrainingSet, FitSettings]:
    """Trees that learn every chance by heart."""
    whole = lesson(nodes=120, days=40, sign=0.5)
    names = [feature.name for feature in whole.features]
    for name in ("power_mean_w", "power_trend_w", "power_max_w", "gpu_util_mean", "sm_clock_min_mhz", "driver_age_d"):
        whole.values[:, names.index(name)] = np.random.default_rng(len(name)).normal(size=len(whole.values))
    return whole, FitSettings(members=2, trees=80, leaves=16, learning_rate=0.4, min_leaf_rows=5, feature_share=1.0)


def test_what_is_too_bold_on_later_rows_is_calibrated(bold: tuple[TrainingSet, FitSettings]) -> None:
    """The line acts on the probabilities, offset and all."""
    whole, settings = bold
    learned = learn(whole, settings)
    assert learned.kind == "gbt"
    assert learned.model.slope < 0.9
    unlearned = whole.fit(settings)
    line = learned.model.slope * unlearned.calibrated(unlearned.log_odds(whole.values[:50]))
    by = learned.model.calibrated(learned.model.log_odds(whole.values[:50])) - line
    np.testing.assert_allclose(by, by[0], atol=1e-9)


def test_few_outages_choose_no_line(bold: tuple[TrainingSet, FitSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    """One outage fewer than it takes: the slope of all stands."""
    whole, settings = bold
    trial = try_on_folds(whole, settings)
    assert trial is not None
    monkeypatch.setattr(choosing, "LEAST_OUTAGES", trial.outages + 1)
    assert learn(whole, settings).model.slope == SHARPER
    assert LEAST_OUTAGES == 20

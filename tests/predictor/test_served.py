"""What serves: trees, hazard or both, chosen on rows that none had seen."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import START_MS, lesson
from sklearn.metrics import roc_auc_score

from predictor.hazard import choice
from predictor.hazard.blend import HazardBlend, loaded, stored
from predictor.hazard.choice import choose_model, node_hours
from predictor.hazard.hazard import HazardEvidence
from predictor.hazard.prior import packaged
from predictor.history.arrays import DAY_MS, HOUR_MS
from predictor.model.choice import TrainingSet, search
from predictor.model.fit import FitSettings
from predictor.model.forest import digest

QUICK = FitSettings(trees=20, members=1)


def every(whole: TrainingSet, hours: int) -> TrainingSet:
    """The rows of every so many hours alone."""
    return whole.only((whole.time_ms - START_MS) % (hours * HOUR_MS) == 0)


def test_the_blend_serves_where_failures_have_signs() -> None:
    """It ranks rows of another time, and its bytes say the same."""
    served = choose_model(lesson(nodes=120, days=40, sign=0.5), packaged(), QUICK)
    assert served.kind == "blend"
    assert isinstance(served.model, HazardBlend)
    assert served.model.weight == 0.5
    assert set(served.figures) == {"trees", "blend", "hazard", "history_count", "rules"}
    later = lesson(nodes=120, days=40, sign=0.5, seed=2)
    said = served.model.probability(later.values)
    assert roc_auc_score(later.positive, said) > 0.7
    assert said.mean() == pytest.approx(later.positive.mean(), rel=0.4)
    blob = stored(served.model)
    np.testing.assert_array_equal(loaded(blob, digest(blob)).probability(later.values), said)


def test_a_young_site_is_served_by_the_prior_and_its_own_outages() -> None:
    """Too few to grow trees: the hazard says so, and how much of it is the site's own."""
    young = lesson(nodes=40, days=12, sign=0.5)
    served = choose_model(young, packaged(), QUICK)
    assert served.kind == "hazard"
    assert "too few outages for trees" in served.why
    assert served.why.endswith("of the failures behind it are of this site")
    later = lesson(nodes=120, days=40, sign=0.5, seed=2)
    assert roc_auc_score(later.positive, served.model.probability(later.values)) > 0.6


@pytest.mark.parametrize("best", ["trees", "hazard"])
def test_what_is_surely_better_is_taken(best: str) -> None:
    """And nothing else: what is better by chance is not."""
    whole = lesson(nodes=200, days=60, sign=0.5)
    trial = search(whole, QUICK)
    assert trial is not None
    random = np.random.default_rng(5)
    blind = random.normal(-4.0, 1.0, len(trial.rows))
    knows = blind + 4.0 * trial.seen.positive
    said = {name: knows if name == best else blind for name in ("blend", "trees", "hazard")}
    taken, why = choice._taken(whole, trial, said)
    assert taken == best
    assert "surely better than trees and the additive hazard, half and half, on the last 2 folds" in why
    other = {name: random.normal(-4.0, 0.2, len(trial.rows)) for name in said}
    assert choice._taken(whole, trial, other)[0] == "blend"


def test_rows_of_another_kind_are_learned_by_trees_and_baselines_alone() -> None:
    """Disks have none of the signs."""
    whole = lesson(nodes=120, days=40, sign=0.5)
    strange = tuple(replace(one, name=f"smart_{at}") for at, one in enumerate(whole.features) if at > 20)
    kept = replace(whole, values=whole.values, features=(*whole.features[:21], *strange))
    assert not isinstance(choose_model(whole, None, QUICK).model, HazardBlend)
    with pytest.raises(ValueError, match="is not in"):
        choose_model(kept, packaged(), QUICK)  # the baselines' columns are gone, and no hazard is asked


@pytest.mark.parametrize("hours", [12, 24])
def test_a_rate_does_not_depend_on_how_often_nodes_are_looked_at(hours: int) -> None:
    """Windows overlap at a short cadence and leave gaps at a long one: hours at risk are those that any covers."""
    whole = lesson(nodes=60, days=60)
    seen = node_hours(every(whole, hours))
    assert seen.hours.sum() == pytest.approx(60 * 60 * 24, rel=0.03)
    rate = HazardEvidence.weak(1).after(seen).rates()[0, 0]
    assert rate == pytest.approx(HazardEvidence.weak(1).after(node_hours(whole)).rates()[0, 0], rel=0.1)


def test_hours_that_no_window_covers_are_not_at_risk() -> None:
    """A look every third day: a third of the time is known."""
    seen = node_hours(every(lesson(nodes=60, days=60), 72))
    assert seen.hours.sum() == pytest.approx(60 * 20 * 24, rel=0.03)
    assert DAY_MS == 24 * HOUR_MS

"""An additive hazard: what it learns, that an update is the same arithmetic, and that its parts are the score."""

import numpy as np
import pytest
from lessons import lesson

from predictor.dataset.matrix import FIXED
from predictor.hazard.blend import HazardBlend, loaded, log_hazard, log_odds_of, no_trees, stored
from predictor.hazard.hazard import HazardEvidence, HazardHours, per_hour, probability_within
from predictor.hazard.signs import SIGN_NAMES, SIGNS, sign_values
from predictor.learning.training_set import TrainingSet
from predictor.live.reasons import explain, references
from predictor.model.fit import FitSettings
from predictor.model.forest import Forest, ModelError, digest

NAMES = tuple(feature.name for feature in FIXED)
XID = SIGN_NAMES.index("hardware_xid_1d log")


def drawn(rows: int = 60_000, seed: int = 3) -> tuple[HazardHours, np.ndarray]:
    """Half-days of nodes at risk, with two true classes: one of the base alone, one of Xids."""
    random = np.random.default_rng(seed)
    signs = np.zeros((len(SIGNS), rows))
    signs[0], signs[XID] = 1.0, np.log1p(random.random(rows) < 0.1)
    truth = np.zeros((2, len(SIGNS)))
    truth[0, 0], truth[1, XID] = 2e-4, 8e-3
    hours, classes = np.full(rows, 12.0), np.zeros(rows, dtype=np.int64)
    times = np.stack([random.exponential(1 / np.maximum(truth[one] @ signs, 1e-12)) for one in range(2)])
    failed = times.min(axis=0) < 12.0
    hours[failed], classes[failed] = times.min(axis=0)[failed], times.argmin(axis=0)[failed]
    return HazardHours(signs, hours, failed.astype(np.float64), classes), truth


def test_rates_are_found_per_class_and_per_hour() -> None:
    """Within a few standard errors of what drew the failures; a class takes no failure of the other."""
    seen, truth = drawn()
    rates = HazardEvidence.weak(2).after(seen).rates()
    assert rates[0, 0] == pytest.approx(truth[0, 0], rel=0.3)
    assert rates[1, XID] == pytest.approx(truth[1, XID], rel=0.15)
    assert rates[1, 0] < truth[0, 0] / 10
    assert (rates >= 0).all()


def test_shares_of_a_failure_are_one_and_time_at_risk_is_all_counted() -> None:
    """Shape grows by the failures, exposure by the unit-hours, so that nothing is lost or counted twice."""
    seen, _ = drawn(5_000)
    before = HazardEvidence.weak(2)
    after = before.after(seen)
    by_class = [seen.failed[seen.classes == one].sum() for one in range(2)]
    np.testing.assert_allclose((after.shape - before.shape).sum(axis=1), by_class, rtol=1e-9)
    np.testing.assert_allclose((after.exposure - before.exposure)[0], (seen.signs * seen.hours).sum(axis=1))


def test_time_that_was_not_watched_counts_for_nothing() -> None:
    """A node that leaves after an hour is no quiet half-day: the hazard is that of the hours."""
    signs = np.zeros((len(SIGNS), 1_000))
    signs[0] = 1.0
    failed = (np.arange(1_000) < 10).astype(np.float64)
    nothing = np.zeros(1_000, dtype=np.int64)
    whole = HazardEvidence.weak(1).after(HazardHours(signs, np.full(1_000, 12.0), failed, nothing)).rates()[0, 0]
    short = HazardEvidence.weak(1).after(HazardHours(signs, np.full(1_000, 1.0), failed, nothing)).rates()[0, 0]
    assert whole == pytest.approx(10 / 12_000, rel=0.35)
    assert short / whole > 4


def test_news_is_an_update_and_not_a_new_training() -> None:
    """Day after day lands where all at once does, as closely as attribution before and after the news allows."""
    seen, _ = drawn()
    half = len(seen.hours) // 2
    parts = [
        HazardHours(seen.signs[:, part], seen.hours[part], seen.failed[part], seen.classes[part])
        for part in (slice(0, half), slice(half, None))
    ]
    once, twice = HazardEvidence.weak(2).after(seen), HazardEvidence.weak(2).after(parts[0]).after(parts[1])
    np.testing.assert_allclose(twice.exposure, once.exposure)
    assert twice.rates()[1, XID] == pytest.approx(once.rates()[1, XID], rel=0.05)
    assert 0.5 < twice.local_share(HazardEvidence.weak(2)) < 1


def test_a_node_is_scored_alike_alone_and_among_others() -> None:
    """To the last bit: live scores are asked one way, backtests another."""
    random = np.random.default_rng(5)
    values = random.gamma(0.5, 5, (257, len(FIXED))).astype(np.float32)
    values[random.random(values.shape) < 0.3] = np.nan
    rates = random.gamma(0.3, 1e-3, (3, len(SIGNS)))
    together = per_hour(rates, sign_values(values, NAMES))
    alone = [per_hour(rates, sign_values(values[at : at + 1], NAMES))[0] for at in range(len(values))]
    np.testing.assert_array_equal(together, alone)
    assert (together >= 0).all()
    order = random.permutation(len(FIXED))
    np.testing.assert_array_equal(per_hour(rates, sign_values(values[:, order], [NAMES[at] for at in order])), together)


def test_whatever_a_row_says_its_score_is_a_probability() -> None:
    """Counts without end, infinities and negative ages are signs of nothing, or of a bounded something."""
    values = np.array([[np.inf], [-np.inf], [3e38], [-3e38], [np.nan]], dtype=np.float32).repeat(len(FIXED), 1)
    score = probability_within(per_hour(np.full((1, len(SIGNS)), 1e-4), sign_values(values, NAMES)), 24)
    assert ((score >= 0) & (score <= 1)).all()


@pytest.fixture(scope="module")
def whole() -> TrainingSet:
    """A fleet whose failures have a sign, and nodes that fail again."""
    return lesson(nodes=60, days=40, sign=0.5, lemon=0.5)


@pytest.fixture(scope="module")
def trees(whole: TrainingSet) -> Forest:
    """Trees of it."""
    return whole.fit(FitSettings(members=1, trees=30))


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_the_reasons_of_a_blend_add_up(whole: TrainingSet, trees: Forest, weight: float) -> None:
    """Base and parts are the score, to a billionth; the parts of one row are those that it has among others."""
    rates = np.random.default_rng(1).gamma(0.5, 2e-4, (2, len(SIGNS)))
    blend = HazardBlend(trees if weight < 1 else no_trees(), NAMES, rates, 24, weight, 0.8, -0.3)
    rows, reference = whole.values[:400], references(whole.values, FIXED)
    explained = explain(blend, rows, FIXED, reference)
    np.testing.assert_allclose(explained.base + explained.parts.sum(axis=0), explained.probability, atol=1e-9)
    np.testing.assert_array_equal(explained.probability, blend.probability(rows))
    np.testing.assert_allclose(explain(blend, rows[7:8], FIXED, reference).parts[:, 0], explained.parts[:, 7])
    xid = explained.groups.index("hardware_xid")
    shown = rows[:, NAMES.index("hardware_xid_1d")] > 0
    assert (explained.parts[xid][shown] > 0).all()


def test_a_blend_of_one_weight_is_that_model(whole: TrainingSet, trees: Forest) -> None:
    """The geometric mean lies between both."""
    rates = np.full((1, len(SIGNS)), 1e-4)
    rows = whole.values[:200]
    of_trees, of_both, of_hazard = (
        HazardBlend(trees, NAMES, rates, 24, weight).probability(rows) for weight in (0.0, 0.5, 1.0)
    )
    np.testing.assert_allclose(of_trees, trees.probability(rows), rtol=1e-9)
    np.testing.assert_allclose(of_hazard, probability_within(per_hour(rates, sign_values(rows, NAMES)), 24), rtol=1e-9)
    assert ((of_both - of_trees) * (of_hazard - of_both) >= -1e-12).all()
    np.testing.assert_allclose(log_odds_of(log_hazard(np.array([-9.0, 0.0, 3.0]))), [-9.0, 0.0, 3.0])


def test_a_blend_is_stored_as_plain_arrays(whole: TrainingSet, trees: Forest) -> None:
    """It says the same when it is read again; damage, and signs of another version, are told."""
    blend = HazardBlend(trees, NAMES, np.full((1, len(SIGNS)), 1e-4), 24, 0.3)
    blob = stored(blend)
    again = loaded(blob, digest(blob))
    np.testing.assert_array_equal(again.probability(whole.values[:50]), blend.probability(whole.values[:50]))
    plain = stored(trees)
    assert isinstance(loaded(plain, digest(plain)), Forest)
    with pytest.raises(ModelError, match="damaged"):
        loaded(blob[:-1], digest(blob))
    other = stored(HazardBlend(trees, NAMES, np.full((1, len(SIGNS) - 1), 1e-4), 24, 0.3))
    with pytest.raises(ModelError, match="other signs"):
        loaded(other, digest(other))

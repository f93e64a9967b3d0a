"""What groups of signs contribute, on forests small enough to see through, and on fitted ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictor.history.arrays import NAN, Feature
from predictor.live.reasons import MAX_REASONS, AdditivityError, Explanation, explain, references
from predictor.model.fit import FitSettings, fit
from predictor.model.forest import MOST_LEAVES, Forest, sigmoid

FEATURES = (
    Feature("xid_7d", "xid"),
    Feature("xid_age_d", "xid", reference=NAN),
    Feature("outages_28d", "outages"),
    Feature("temp_max_c", "temperature", reference=None),
)
NAMES = [feature.name for feature in FEATURES]
QUIET = np.array([0, np.nan, 0, 60], dtype=np.float32)


def forest_of(*trees: tuple[list[tuple[str, float]], list[float]]) -> Forest:
    """Each tree a chain: a row that exceeds the first threshold is in the last leaf, the second, in the one before."""
    splits = [(t, i, name, at) for t, (chain, _) in enumerate(trees) for i, (name, at) in enumerate(chain)]
    return Forest(
        tree=np.array([t for t, *_ in splits]),
        feature=np.array([NAMES.index(name) for *_, name, _ in splits]),
        threshold=np.array([at for *_, at in splits], dtype=np.float32),
        missing_left=np.ones(len(splits), dtype=bool),
        # The split i sends right rows past all leaves but the last i.
        kills=np.array([(1 << (len(trees[t][0]) - i)) - 1 for t, i, *_ in splits], dtype=np.uint16),
        value=np.array([np.pad(values, (0, MOST_LEAVES - len(values))) for _, values in trees]),
        baseline=-5.0,
    )


STUMPS = forest_of(([("xid_7d", 0.5)], [0, 2]), ([("outages_28d", 0.5)], [0, 1]), ([("temp_max_c", 80)], [0, 1.5]))


def row(**values: float) -> np.ndarray:
    """A row where nothing has happened, but for what is given."""
    found = QUIET.copy()
    for name, value in values.items():
        found[NAMES.index(name)] = value
    return found


def part(explained: Explanation, group: str, at: int = 0) -> float:
    """What a group adds to a row's score."""
    return float(explained.parts[explained.groups.index(group), at])


def test_parts_keep_the_proportions_of_the_log_odds_and_add_up() -> None:
    """Two of three log-odds are the Xids': so are two of three parts of what was gained."""
    rows = np.array([row(xid_7d=3, outages_28d=1), row()])
    explained = explain(STUMPS, rows, FEATURES, QUIET)
    base, score = float(sigmoid(np.array(-5.0))), float(sigmoid(np.array(-2.0)))
    assert explained.base == pytest.approx(base)
    assert part(explained, "xid") == pytest.approx((score - base) * 2 / 3)
    assert part(explained, "outages") == pytest.approx((score - base) / 3)
    assert part(explained, "temperature") == 0
    assert explained.parts[:, 1].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(explained.probability, STUMPS.probability(rows))


def test_a_calibrated_forest_is_explained_on_its_line() -> None:
    """The base and the score are those that are served."""
    forest = replace(STUMPS, slope=0.7, offset=-0.4)
    explained = explain(forest, np.array([row(xid_7d=3)]), FEATURES, QUIET)
    assert explained.base == pytest.approx(float(sigmoid(np.array(0.7 * -5 - 0.4))))
    assert explained.base + part(explained, "xid") == pytest.approx(float(sigmoid(np.array(0.7 * -3 - 0.4))))


def test_groups_that_raise_and_lower_as_much_leave_the_base() -> None:
    """A gain of nothing is shared all the same: no division by nothing."""
    forest = forest_of(([("xid_7d", 0.5)], [0, 1]), ([("temp_max_c", 80)], [0, -1]))
    explained = explain(forest, np.array([row(xid_7d=1, temp_max_c=90)]), FEATURES, QUIET)
    assert explained.probability[0] == pytest.approx(explained.base, abs=1e-15)
    assert part(explained, "xid") == pytest.approx(-part(explained, "temperature"))
    assert part(explained, "xid") > 0


def test_two_groups_that_only_count_together_share_alike() -> None:
    """Their Shapley value: neither does anything without the other."""
    forest = forest_of(([("xid_7d", 0.5), ("outages_28d", 0.5)], [0, 0, 3]))
    both = replace(forest, kills=np.array([1, 2], dtype=np.uint16))
    explained = explain(both, np.array([row(xid_7d=1, outages_28d=1), row(xid_7d=1)]), FEATURES, QUIET)
    assert part(explained, "xid") == pytest.approx(part(explained, "outages"))
    assert part(explained, "xid") > 0
    assert explained.parts[:, 1].tolist() == [0, 0, 0]


def rows_and_labels() -> tuple[np.ndarray, np.ndarray, tuple[Feature, ...]]:
    """Measures of one block, which only count together, two groups that stand alone, and gaps."""
    random = np.random.default_rng(5)
    rows = random.normal(size=(6000, 5)).astype(np.float32)
    rows[random.random(rows.shape) < 0.1] = np.nan
    odds = 3 * (np.nan_to_num(rows[:, 0]) > 0.5) * (np.nan_to_num(rows[:, 1]) > 0.5) + np.nan_to_num(rows[:, 3]) - 4
    groups = (("a", "a.last"), ("b", "b.last"), ("c", "c.last"), ("d", "d"), ("e", "e"))
    features = tuple(Feature(name, group, None) for group, name in groups)
    return rows, random.random(6000) < sigmoid(odds), features


@pytest.fixture(scope="module", params=[True, False], ids=["blocks", "free"])
def fitted(request: pytest.FixtureRequest) -> tuple[Forest, np.ndarray, tuple[Feature, ...]]:
    """A forest of blocks, and one whose trees ask whatever they like."""
    rows, positive, features = rows_and_labels()
    settings = FitSettings(members=2, trees=40, leaves=8, alone=request.param)
    return fit(rows, positive, features, settings), rows, features


def test_parts_add_up_to_the_score_of_every_row(fitted: Any) -> None:
    """To a billionth, whatever meets in a tree."""
    forest, rows, features = fitted
    explained = explain(forest, rows, features, references(rows, features))
    np.testing.assert_allclose(explained.base + explained.parts.sum(axis=0), explained.probability, atol=1e-9)
    np.testing.assert_array_equal(explained.probability, forest.probability(rows))
    assert (np.abs(explained.parts).max(axis=1) > 1e-4).sum() >= 3


def test_a_rows_parts_do_not_depend_on_the_other_rows(fitted: Any) -> None:
    """So that only rows that changed need to be asked again."""
    forest, rows, features = fitted
    reference = references(rows, features)
    whole = explain(forest, rows, features, reference).parts
    for some in ([7], [3, 7, 4000]):
        np.testing.assert_allclose(explain(forest, rows[some], features, reference).parts, whole[:, some], atol=1e-12)


def test_blocks_that_stand_alone_are_explained_as_if_asked_alone() -> None:
    """Additivity of the model itself: a block's log-odds do not depend on the others."""
    rows, positive, features = rows_and_labels()
    forest = fit(rows, positive, features, FitSettings(members=2, trees=40))
    reference = references(rows, features)
    for column in (3, 4):
        moved = rows[:300].copy()
        moved[:, column] = reference[column]
        by = forest.log_odds(rows[:300]) - forest.log_odds(moved)
        alone = np.tile(reference, (300, 1))
        alone[:, column] = rows[:300, column]
        np.testing.assert_allclose(by, forest.log_odds(alone) - forest.log_odds(reference[None, :]), atol=1e-9)


def test_parts_are_the_mean_of_two_walks_from_the_reference(fitted: Any) -> None:
    """Against plain code: groups are put in place one after another, in their order and in its reverse."""
    forest, rows, features = fitted
    reference, asked = references(rows, features), rows[:300]
    explained = explain(forest, asked, features, reference)
    moved = np.zeros((len(features), len(asked)))
    for order in (range(len(features)), reversed(range(len(features)))):
        at = np.tile(reference, (len(asked), 1))
        for column in order:
            before = forest.log_odds(at)
            at[:, column] = asked[:, column]
            moved[column] += (forest.log_odds(at) - before) / 2
    gained = explained.probability - explained.base
    np.testing.assert_allclose(explained.parts * moved.sum(axis=0), moved * gained, atol=1e-9)


def test_a_level_is_compared_with_the_fleet() -> None:
    """A hot node among cool ones; in a fleet that is hot everywhere it is no reason."""
    cool = [row(temp_max_c=60) for _ in range(4)]
    rows = np.array([row(temp_max_c=85), *cool])
    assert references(rows, FEATURES)[NAMES.index("temp_max_c")] == 60
    assert part(explain(STUMPS, rows, FEATURES, references(rows, FEATURES)), "temperature") > 0
    hot = np.array([row(temp_max_c=85)] * 3)
    assert part(explain(STUMPS, hot, FEATURES, references(hot, FEATURES)), "temperature") == 0


def test_a_fleet_without_telemetry_has_unknown_references() -> None:
    """Unknown equals unknown: nothing happened."""
    rows = np.array([row(temp_max_c=np.nan)] * 2)
    reference = references(rows, FEATURES)
    assert np.isnan(reference[NAMES.index("temp_max_c")])
    assert part(explain(STUMPS, rows, FEATURES, reference), "temperature") == 0


def test_parts_that_do_not_add_up_are_never_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is raised, not shown to an operator."""
    rows = np.array([row(xid_7d=3)])
    monkeypatch.setattr("predictor.live.reasons._moves", lambda *_: np.full((3, 1), 0.5))
    monkeypatch.setattr("predictor.live.reasons._per_log_odds", lambda *_: np.full(1, 0.01))
    with pytest.raises(AdditivityError, match="miss it"):
        explain(STUMPS, rows, FEATURES, QUIET)


def test_the_rows_themselves_are_left_alone() -> None:
    """Nothing is set to its reference in place."""
    rows = np.array([row(xid_7d=3)])
    before = rows.copy()
    explain(STUMPS, rows, FEATURES, QUIET)
    np.testing.assert_array_equal(rows, before)


def explained_of(parts: dict[str, float], score: float) -> Explanation:
    """One row in given parts."""
    base = score - sum(parts.values())
    return Explanation(tuple(parts), np.array([score]), base, np.array(list(parts.values()))[:, None])


def test_the_strongest_come_first_and_noise_is_left_out() -> None:
    """At most five; below a twentieth of the score, or lowering it, is no reason; ties by name."""
    parts = dict(zip("hgfedcba", (0.2, 0.2, 0.1, 0.09, 0.08, 0.07, 0.01, -0.5), strict=True))
    explained = explained_of(parts, 0.4)
    assert explained.strongest(0) == [("g", 0.2), ("h", 0.2), ("f", 0.1), ("e", 0.09), ("d", 0.08)]
    assert len(explained.strongest(0)) == MAX_REASONS
    assert explained.rest(0) == pytest.approx(0.4 - 0.67)
    assert explained_of({"a": 0.01}, 0.4).strongest(0) == []


def test_the_strongest_and_the_rest_add_up_to_the_score(fitted: Any) -> None:
    """Whatever is shown."""
    forest, rows, features = fitted
    explained = explain(forest, rows[:200], features, references(rows, features))
    for at in range(200):
        shown = sum(by for _, by in explained.strongest(at))
        assert shown + explained.rest(at) == pytest.approx(float(explained.probability[at]), abs=1e-12)


def test_the_strongest_of_all_are_those_of_each(fitted: Any) -> None:
    """At once, and in the same order."""
    forest, rows, features = fitted
    explained = explain(forest, rows[:200], features, references(rows, features))
    assert any(explained.all_strongest())
    ties = explained_of(dict(zip("hgfedcba", (0.2, 0.2, 0.1, 0.09, 0.08, 0.07, 0.01, -0.5), strict=True)), 0.4)
    assert ties.all_strongest() == [ties.strongest(0)]
    assert explained.all_strongest() == [explained.strongest(row) for row in range(explained.parts.shape[1])]

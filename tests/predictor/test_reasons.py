"""Contributions of groups of signs, on a forest small enough to see through."""

import numpy as np
import pytest

from predictor.features import FEATURES, NAMES
from predictor.forest import Forest, sigmoid
from predictor.reasons import MAX_REASONS, contributions, references, strongest


def stump(*splits: tuple[str, float, float]) -> Forest:
    """One tree a split: (feature, threshold, log-odds above it); unknown goes left."""
    feature, threshold, value, left, right, roots = [], [], [], [], [], []
    for name, at, above in splits:
        root = len(feature)
        roots.append(root)
        feature += [NAMES.index(name), 0, 0]
        threshold += [at, np.inf, np.inf]
        value += [0.0, 0.0, above]
        left += [root + 1, root + 1, root + 2]
        right += [root + 2, root + 1, root + 2]
    as_ints = (np.array(part, dtype=np.int64) for part in (feature, left, right, roots))
    features, lefts, rights, starts = as_ints
    return Forest(
        features, np.array(threshold), np.ones(len(feature), bool), lefts, rights, np.array(value), starts, 1, -5.0
    )


FOREST = stump(("hardware_xid_7d", 0.5, 2.0), ("outages_28d", 0.5, 1.0), ("gpu_temp_max_c", 80.0, 1.5))


def row(**values: float) -> np.ndarray:
    """A row at the references, but for what is given."""
    found = np.array([0.0 if f.reference is None else f.reference for f in FEATURES], dtype=np.float32)
    for name, value in values.items():
        found[NAMES.index(name)] = value
    return found


def test_the_contribution_is_what_the_score_falls_by() -> None:
    """With the group at its reference, the others as they are."""
    rows = np.array([row(hardware_xid_7d=3, outages_28d=1), row()])
    moved = contributions(FOREST, rows, FOREST.probability(rows))
    both, history, xids = (float(sigmoid(np.array(x))) for x in (-2.0, -4.0, -3.0))
    assert moved["hardware_xid"].tolist() == [pytest.approx(both - history), 0]
    assert moved["outages"].tolist() == [pytest.approx(both - xids), 0]
    assert moved["ecc_sbe"].tolist() == [0, 0]


def test_a_level_is_compared_with_the_fleet() -> None:
    """A hot node among cool ones; in a fleet that is hot everywhere it is no reason."""
    cool = [row(gpu_temp_max_c=60) for _ in range(4)]
    rows = np.array([row(gpu_temp_max_c=85), *cool])
    assert references(rows)[NAMES.index("gpu_temp_max_c")] == 60
    assert contributions(FOREST, rows, FOREST.probability(rows))["temperature"][0] > 0
    hot = np.array([row(gpu_temp_max_c=85)] * 3)
    assert contributions(FOREST, hot, FOREST.probability(hot))["temperature"].tolist() == [0, 0, 0]


def test_a_fleet_without_telemetry_has_unknown_references() -> None:
    """Unknown equals unknown: nothing happened."""
    rows = np.array([row(gpu_temp_max_c=np.nan)] * 2)
    assert np.isnan(references(rows)[NAMES.index("gpu_temp_max_c")])
    assert contributions(FOREST, rows, FOREST.probability(rows))["temperature"].tolist() == [0, 0]


def test_the_rows_themselves_are_left_alone() -> None:
    """Ablation works on copies."""
    rows = np.array([row(hardware_xid_7d=3)])
    before = rows.copy()
    contributions(FOREST, rows, FOREST.probability(rows))
    np.testing.assert_array_equal(rows, before)


def test_the_strongest_come_first_and_noise_is_left_out() -> None:
    """At most five; below a twentieth of the score, or lowering it, is no reason; ties by name."""
    moved = {
        name: np.array([by]) for name, by in zip("hgfedcba", (0.2, 0.2, 0.1, 0.09, 0.08, 0.07, 0.01, -0.5), strict=True)
    }
    assert strongest(moved, 0, 0.4) == [("g", 0.2), ("h", 0.2), ("f", 0.1), ("e", 0.09), ("d", 0.08)]
    assert len(strongest(moved, 0, 0.4)) == MAX_REASONS
    assert strongest({"a": np.array([0.01])}, 0, 0.4) == []

"""What scikit-learn grew, as a forest: the only place that knows how its trees are laid out.

A test holds the forest to scikit-learn's own `decision_function`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from predictor.bins import Bins
from predictor.forest import MOST_LEAVES, Forest
from predictor.history import Floats, Ints


@dataclass(frozen=True, slots=True)
class Grown:
    """A fitted booster, and the columns (of the matrix that forests are asked with) whose codes it learned from."""

    booster: HistGradientBoostingClassifier
    columns: Ints


@dataclass(slots=True)
class _Layout:
    """The splits of the trees so far, and the leaves of the tree at hand."""

    splits: list[tuple[int, int, float, bool, int]]
    leaves: list[float]

    def visit(self, nodes: Any, at: int, tree: int) -> int:
        """Lay out a node and what is below it, leaves from left to right; returns the bits of its leaves."""
        node = nodes[at]
        if node["is_leaf"]:
            self.leaves.append(float(node["value"]))
            return 1 << (len(self.leaves) - 1)
        place = len(self.splits)
        self.splits.append((tree, 0, 0.0, False, 0))
        left = self.visit(nodes, int(node["left"]), tree)
        self.splits[place] = (
            *(tree, int(node["feature_idx"]), float(node["num_threshold"]), bool(node["missing_go_to_left"])),
            left,
        )
        return left | self.visit(nodes, int(node["right"]), tree)


def average(grown: Sequence[Grown], bins: Bins) -> Forest:
    """The mean log-odds of boosters as one forest that takes values, not codes."""
    values: list[Floats] = []
    splits: list[tuple[int, int, float, bool, int]] = []
    for one in grown:
        for stage in one.booster._predictors:
            layout = _Layout([], [])
            layout.visit(stage[0].nodes, 0, len(values))
            splits += [(tree, int(one.columns[at]), code, left, bits) for tree, at, code, left, bits in layout.splits]
            values.append(np.pad(layout.leaves, (0, MOST_LEAVES - len(layout.leaves))) / len(grown))
    tree, feature, code, missing_left, kills = zip(*splits, strict=True) if splits else ((), (), (), (), ())
    features: Ints = np.array(feature, dtype=np.int64)
    return Forest(
        tree=np.array(tree, dtype=np.int64),
        feature=features,
        threshold=bins.thresholds(features, np.array(code, dtype=np.float64)),
        missing_left=np.array(missing_left, dtype=np.bool_),
        kills=np.array(kills, dtype=np.uint16),
        value=np.array(values),
        baseline=float(np.mean([one.booster._baseline_prediction.item() for one in grown])),
    )

"""A fitted model as plain arrays: gradient-boosted trees, evaluated with numpy, stored without pickle.

Loading a pickle runs code that its author chose, and breaks when scikit-learn changes. These arrays do neither:
whoever can write to the `models` table can spoil scores, but cannot run anything on the server.
The digest that is checked on loading tells damage and truncation, not malice.

A tree's leaves are numbered from left to right, and each split holds, as bits, the leaves that a row cannot reach once
it goes right. A row lies in the lowest leaf that none of its splits ruled out, whatever the order in which they are
asked (QuickScorer, SIGIR 2015): no row walks anywhere, each split is one comparison of a whole column.
The leaves' values add up to log-odds, which a line (slope, offset) calibrates.
"""

import hashlib
import io
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictor.history.arrays import Floats, Grid, Ints

Bits: TypeAlias = NDArray[np.uint16]
MOST_LEAVES = 16
# Rows that are asked at once: the working arrays stay in the cache.
_BLOCK = 16_384
# The number of the lowest bit that is not set.
_LOWEST: Ints = np.array([((~bits & (bits + 1)).bit_length() - 1) & 15 for bits in range(1 << MOST_LEAVES)])


class ModelError(ValueError):
    """A stored model that cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Splits, one entry each, in order of their tree; and the leaves of every tree.

    A row goes right where its value is above the threshold, or unknown and not `missing_left`.
    `value` is (trees, MOST_LEAVES) in log-odds.
    """

    tree: Ints
    feature: Ints
    threshold: Grid
    missing_left: NDArray[np.bool_]
    kills: Bits  # bit l: leaf l is out of reach of a row that goes right
    value: Floats
    baseline: float
    slope: float = 1.0
    offset: float = 0.0

    def log_odds(self, rows: Grid) -> Floats:
        """Log-odds before calibration. `rows` is (n, features), NaN where unknown."""
        found = np.full(len(rows), self.baseline)
        for start in range(0, len(rows), _BLOCK):
            columns = np.ascontiguousarray(rows[start : start + _BLOCK].T)
            for tree, splits in enumerate(self.splits_of_trees()):
                found[start : start + _BLOCK] += self.leaf_values(tree, self.killed(splits, columns))
        return found

    def splits_of_trees(self) -> list[range]:
        """The splits of each tree; a tree may have none."""
        edges = np.searchsorted(self.tree, np.arange(len(self.value) + 1)).tolist()
        return [range(start, end) for start, end in pairwise(edges)]

    def killed(self, splits: range | Ints, columns: Grid) -> Bits:
        """The leaves that some splits of one tree rule out, for each row; `columns` is (features, n)."""
        bits = np.zeros(columns.shape[1], dtype=np.uint16)
        for split in splits:
            values, threshold = columns[self.feature[split]], self.threshold[split]
            right = values > threshold if self.missing_left[split] else ~(values <= threshold)
            bits |= right * self.kills[split]
        return bits

    def leaf_values(self, tree: int, killed: Bits) -> Floats:
        """What a tree says of rows, by the leaves that all its splits rule out."""
        said: Floats = self.value[tree].take(_LOWEST.take(killed))
        return said

    def calibrated(self, log_odds: Floats) -> Floats:
        """Log-odds on the line that was calibrated."""
        return self.slope * log_odds + self.offset

    def probability(self, rows: Grid) -> Floats:
        """Calibrated probabilities."""
        return sigmoid(self.calibrated(self.log_odds(rows)))


def sigmoid(log_odds: Floats) -> Floats:
    """Log-odds as a probability; 40 is certainty for a float."""
    odds: Floats = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -40.0, 40.0)))
    return odds


_ARRAYS = ("tree", "feature", "threshold", "missing_left", "kills", "value")
_NUMBERS = ("baseline", "slope", "offset")


def to_bytes(forest: Forest) -> bytes:
    """The forest as a compressed NumPy archive."""
    buffer = io.BytesIO()
    arrays = {name: getattr(forest, name) for name in _ARRAYS}
    np.savez_compressed(buffer, numbers=np.array([getattr(forest, name) for name in _NUMBERS]), **arrays)
    return buffer.getvalue()


def digest(blob: bytes) -> str:
    """SHA-256 of a stored model, in hex."""
    return hashlib.sha256(blob).hexdigest()


def from_bytes(blob: bytes, sha256: str) -> Forest:
    """The forest of a stored model.

    Raises:
        ModelError: the digest differs, or the bytes are no forest.
    """
    if digest(blob) != sha256:
        raise ModelError("the stored model is damaged (its SHA-256 differs): train again with `foreshock train`")
    try:
        with np.load(io.BytesIO(blob), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in _ARRAYS}
            numbers = dict(zip(_NUMBERS, stored["numbers"].tolist(), strict=True))
    except (KeyError, ValueError, OSError) as error:
        raise ModelError("the stored model is of another kind: train again with `foreshock train`") from error
    return Forest(**arrays, **numbers)

"""A fitted model as plain arrays: gradient-boosted trees, evaluated with numpy, stored without pickle.

Loading a pickle runs code that its author chose, and breaks when scikit-learn changes. These arrays do neither:
whoever can write to the `models` table can spoil scores, but cannot run anything on the server.
The digest that is checked on loading tells damage and truncation, not malice.

A row goes left at a node where value <= threshold, or where the value is NaN and the node says so;
the leaves' values add up to log-odds, which a line (slope, offset) calibrates.
"""

import hashlib
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.history import Floats, Ints

# Rows that are walked at once: the working arrays stay in the cache.
_BLOCK = 4096


class ModelError(ValueError):
    """A stored model that cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees laid end to end; one entry a tree node. A leaf's children are itself.

    `depth` is the longest way from a root to a leaf; `roots` has one entry a tree.
    """

    feature: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    left: Ints
    right: Ints
    value: Floats
    roots: Ints
    depth: int
    baseline: float
    slope: float = 1.0
    offset: float = 0.0

    def log_odds(self, rows: NDArray[np.float32]) -> Floats:
        """Log-odds before calibration. `rows` is (n, features), NaN where unknown."""
        found = np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK):
            found[start : start + _BLOCK] = self._walk(rows[start : start + _BLOCK])
        return found

    def _walk(self, rows: NDArray[np.float32]) -> Floats:
        at = np.repeat(self.roots[None, :], len(rows), axis=0)
        row = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            value = rows[row, self.feature[at]]
            goes_left = (value <= self.threshold[at]) | (np.isnan(value) & self.missing_left[at])
            at = np.where(goes_left, self.left[at], self.right[at])
        total: Floats = self.value[at].sum(axis=1) + self.baseline
        return total

    def probability(self, rows: NDArray[np.float32]) -> Floats:
        """Calibrated probabilities."""
        return sigmoid(self.slope * self.log_odds(rows) + self.offset)


def sigmoid(log_odds: Floats) -> Floats:
    """Log-odds as a probability; 40 is certainty for a float."""
    odds: Floats = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -40.0, 40.0)))
    return odds


_ARRAYS = ("feature", "threshold", "missing_left", "left", "right", "value", "roots")
_NUMBERS = ("depth", "baseline", "slope", "offset")


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
    return Forest(**arrays, **{**numbers, "depth": int(numbers["depth"])})

"""Values as small numbers: each column cut at its quantiles, once for all boosters that learn from it.

A booster cuts its columns itself, and with weights so slowly that this takes longer than growing all the trees
(scikit-learn 1.9: 7.5 s of 9.6 s). Columns of at most `most` different codes it takes as they are.
"""

from dataclasses import dataclass

import numpy as np

from predictor.history import Floats, Grid, Ints

# On simulated clusters 63 rank as well as 255, in half the time (docs/prediction.md).
MOST_CODES = 63


@dataclass(frozen=True, slots=True)
class Bins:
    """The edges of each column, ascending float32; a value's code is the number of edges below it."""

    edges: tuple[Grid, ...]

    @classmethod
    def of(cls, values: Grid, most: int = MOST_CODES) -> "Bins":
        """Edges between at most `most` codes a column, about equally many known `values` (n, columns) in each."""
        return cls(tuple(_edges(column[np.isfinite(column)], most) for column in values.T))

    def codes(self, values: Grid) -> Grid:
        """The codes of values (n, columns), NaN where unknown."""
        found = np.empty(values.shape, dtype=np.float32)
        for column, edges in enumerate(self.edges):
            known = values[:, column]
            found[:, column] = np.where(np.isnan(known), np.nan, np.searchsorted(edges, known))
        return found

    def thresholds(self, columns: Ints, codes: Floats) -> Grid:
        """What a value must not exceed for its code to be at most the given ones; infinite for all known values."""
        found = np.full(len(columns), np.inf, dtype=np.float32)
        for split, (column, code) in enumerate(zip(columns, codes, strict=True)):
            if code < len(self.edges[column]):
                found[split] = self.edges[column][int(code)]
        return found


def _edges(known: Grid, most: int) -> Grid:
    """Cuts between neighbouring values, so that a value seen later falls to the nearer one; none where all are one."""
    distinct, counts = np.unique(known, return_counts=True)
    if len(distinct) > most:
        part = np.cumsum(counts)[:-1] / counts.sum() * most
        after = np.flatnonzero(np.diff(np.floor(part), prepend=0.0) >= 1)
    else:
        after = np.arange(len(distinct) - 1)
    low, high = distinct[after].astype(np.float64), distinct[after + 1]
    middle: Grid = ((low + high) / 2).astype(np.float32)
    # Rounding may reach the upper value, which would then fall below its own edge.
    return np.where(middle >= high, distinct[after], middle)

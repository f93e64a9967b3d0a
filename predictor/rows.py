"""Rows: which subject is asked at which moment. A subject is what may fail: a node, a link."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from predictor.history import Bools, Ints, to_ms


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry a row: `node` is the subject's position in the fleet, `time_ms` the moment that it is judged at."""

    node: Ints
    time_ms: Ints

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.node)

    def only(self, kept: Bools | Ints) -> "Rows":
        """Those that a mask or a list of positions keeps."""
        return Rows(self.node[kept], self.time_ms[kept])


def joined(first: Rows, second: Rows) -> Rows:
    """The rows of both, one after the other."""
    return Rows(np.concatenate([first.node, second.node]), np.concatenate([first.time_ms, second.time_ms]))


def every(size: int, moments: Sequence[datetime]) -> Rows:
    """Each of `size` subjects at each moment, in order of (time, subject)."""
    times = np.array([to_ms(moment) for moment in moments], dtype=np.int64)
    return Rows(np.tile(np.arange(size, dtype=np.int64), len(times)), np.repeat(times, size))

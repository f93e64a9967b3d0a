"""Counting in windows that end just before a moment, for many groups and moments at once.

    index = WindowIndex.of(groups=node, times_ms=time, weights=count)
    index.sums(moments_ms, 7 * DAY_MS)   # (moments, groups present): what happened in [t - 7 d, t)

Events are sorted once by (group, time); a window is then two binary searches and a difference of running sums.
"""

from dataclasses import dataclass

import numpy as np

from predictor.history import DAY_MS, Floats, Grid, Ints


@dataclass(frozen=True, slots=True)
class WindowIndex:
    """Events of several groups, sorted; `present` are the groups that have any, in order."""

    present: Ints
    keys: Ints  # rank of the group * span + time since base, ascending
    times_ms: Ints
    running: Floats  # running sum of the weights, one longer than keys
    base_ms: int
    span_ms: int

    @classmethod
    def of(cls, groups: Ints, times_ms: Ints, weights: Floats | None = None) -> "WindowIndex":
        """Sort events into an index. All three have one entry an event; without weights each counts one."""
        if not len(groups):
            nothing = np.empty(0, dtype=np.int64)
            return cls(nothing, nothing, nothing, np.zeros(1), 0, 1)
        present, rank = np.unique(groups, return_inverse=True)
        base, span = int(times_ms.min()), int(times_ms.max() - times_ms.min()) + 2
        keys = rank * span + (times_ms - base)
        order = np.argsort(keys, kind="stable")
        counted = np.ones(len(groups)) if weights is None else weights[order]
        running = np.concatenate([[0.0], np.cumsum(counted)])
        return cls(present, keys[order], times_ms[order], running, base, span)

    def before(self, moments_ms: Ints) -> Ints:
        """How many sorted events lie before each moment, (moments, groups): those of lower groups included."""
        offset = np.clip(moments_ms - self.base_ms, 0, self.span_ms - 1)
        rank = np.arange(len(self.present), dtype=np.int64)
        return np.searchsorted(self.keys, rank[None, :] * self.span_ms + offset[:, None], side="left")

    def sums(self, moments_ms: Ints, window_ms: int) -> Floats:
        """The weights of the events in [t - window, t), (moments, groups)."""
        totals: Floats = self.running[self.before(moments_ms)] - self.running[self.before(moments_ms - window_ms)]
        return totals

    def age_ms(self, moments_ms: Ints, window_ms: int) -> Floats:
        """Milliseconds since the last event of the window, (moments, groups); NaN where there is none."""
        end = self.before(moments_ms)
        found = end > self.before(moments_ms - window_ms)
        last = self.times_ms[np.maximum(end - 1, 0)] if len(self.times_ms) else np.zeros_like(end)
        return np.where(found, moments_ms[:, None] - last, np.nan)


def spread(values: Floats, present: Ints, size: int, fill: float) -> Grid:
    """(moments, groups present) laid out over all groups 0 .. size - 1, `fill` where a group has nothing."""
    grid = np.full((values.shape[0], size), fill, dtype=np.float32)
    grid[:, present] = values
    return grid


def largest(values: Floats, owner: Ints, size: int) -> Grid:
    """The largest value among the groups of each owner, (moments, owners); 0 where an owner has none.

    `owner` must ascend (devices sorted by their node).
    """
    grid = np.zeros((values.shape[0], size), dtype=np.float32)
    if len(owner):
        first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
        grid[:, owner[first]] = np.maximum.reduceat(values, first, axis=1)
    return grid


def days(milliseconds: Floats | Ints) -> Floats:
    """Milliseconds as days."""
    found: Floats = milliseconds / DAY_MS
    return found

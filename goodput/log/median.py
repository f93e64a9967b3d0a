"""An exact median of figures that keep coming: the middle ones are kept one by one, of those beyond only how many.

The middle hardly moves, so what is kept stays small however long the log is. Where it does leave what is kept, the
figures must be read again.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Different figures that are kept at most; when there are more, the middle half of them stays.
MOST_KEPT = 4096
_AROUND = 1024


def median(values: Sequence[float]) -> float | None:
    """The middle value (mean of two); None of none."""
    return statistics.median(values) if values else None


class OutsideWindowError(LookupError):
    """The median is among the figures of which only the number is kept."""


@dataclass(frozen=True, slots=True)
class MedianWindow:
    """Figures of [low, high] are kept one by one."""

    low: float = -math.inf
    high: float = math.inf


@dataclass(slots=True)
class FigureCounts:
    """Some figures: how many lie below and above the window, and how often each one inside was seen."""

    below: int = 0
    above: int = 0
    inside: dict[float, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.below + sum(self.inside.values()) + self.above

    def add(self, value: float, window: MedianWindow) -> None:
        """One more."""
        if value < window.low:
            self.below += 1
        elif value > window.high:
            self.above += 1
        else:
            self.inside[value] = self.inside.get(value, 0) + 1

    def narrow(self, window: MedianWindow) -> None:
        """Count what lies outside of a narrower window, and forget it."""
        kept = {}
        for value, times in self.inside.items():
            if value < window.low:
                self.below += times
            elif value > window.high:
                self.above += times
            else:
                kept[value] = times
        self.inside = kept


def joined(parts: Iterable["FigureCounts"]) -> FigureCounts:
    """All figures of several parts of one window."""
    inside: Counter[float] = Counter()
    below = above = 0
    for part in parts:
        below, above = below + part.below, above + part.above
        inside.update(part.inside)
    return FigureCounts(below, above, dict(inside))


def median_of(figures: FigureCounts) -> float | None:
    """The middle figure (mean of two); None of none.

    Raises:
        OutsideWindowError: it is not among those that are kept.
    """
    held = sum(figures.inside.values())
    count = figures.below + held + figures.above
    if not count:
        return None
    middle = count // 2
    first = middle if count % 2 else middle - 1
    if first < figures.below or middle >= figures.below + held:
        raise OutsideWindowError
    left, low = figures.below, None
    for value in sorted(figures.inside):
        left += figures.inside[value]
        if low is None and first < left:
            low = value
        if middle < left:
            return value if low is None or count % 2 else (low + value) / 2
    raise AssertionError("the middle lies inside")


def window_around(values: Sequence[float]) -> MedianWindow:
    """A window around the median of many figures; all of them, where they are few."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) <= 2 * _AROUND:
        return MedianWindow()
    return MedianWindow(ordered[middle - _AROUND], ordered[middle + _AROUND])


def narrower(figures: FigureCounts, window: MedianWindow) -> MedianWindow:
    """The window, or one around the middle half of the figures inside where they have become too many to keep."""
    if len(figures.inside) <= MOST_KEPT:
        return window
    ordered = sorted(figures.inside)
    quarter = len(ordered) // 4
    fresh = MedianWindow(ordered[quarter], ordered[-quarter])
    trial = FigureCounts(figures.below, figures.above, dict(figures.inside))
    trial.narrow(fresh)
    try:
        median_of(trial)
    except OutsideWindowError:  # the median is at the edge: better to keep more than to have to read again
        return window
    return fresh

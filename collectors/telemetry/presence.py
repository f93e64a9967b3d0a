"""Whether something still reports, by its own cadence, and how often a value that rises may be told: plain JSON state.

Nothing is missing for one gap: two looks in a row must lack it; or one, where it reports no oftener than each
PATIENCE_S: so long Prometheus holds a series to be there (its lookback of 5 min). What reports at other moments than
its neighbours is judged by its own pace.
"""

from dataclasses import dataclass
from typing import Any

MISSES = 2
PATIENCE_S = 300.0
# The cadence is the shortest interval, since gaps only ever make one longer; where none is as short any more it grows
# by this share at each report: what reported each 15 s and now does each 10 min is known for slow after 190 of those.
_RELAXED = 1.02
# Of something that reports by itself: intervals of its own that may pass.
_INTERVALS_LATE = 2.5
# The same of something that reported once: whether it ever will again is not known.
_UNKNOWN_S = 3600.0
# A look this share of an interval after a report is one that the next report was due at.
_DUE = 0.99
# Held to be gone so often within a day and back each time, it is only irregular: it gets twice the time, and again.
_FLAPS = 3
_DAY_S = 86400.0


@dataclass(slots=True)
class Presence:
    """When something reported last, how often it does, and for how many looks it is gone.

    Attributes:
        cadence_s: seconds from one report to the next; None before the second.
        together: it came at the same moment as others, which are looked at instead of the clock.
        paced: the first look that lacks it was one that it was due at.
        falls, fell_s: how often it was held to be gone, each within a day of the one before, and when last.
    """

    last_s: float | None = None
    cadence_s: float | None = None
    misses: int = 0
    together: bool = True
    gone: bool = False
    paced: bool = False
    falls: int = 0
    fell_s: float = 0.0

    def report(self, time_s: float) -> bool:
        """It reports; whether it had been held to be gone."""
        if self.last_s is not None and time_s > self.last_s and (self.cadence_s is None or not self.gone):
            interval_s = time_s - self.last_s
            self.cadence_s = interval_s if self.cadence_s is None else min(interval_s, self.cadence_s * _RELAXED)
        self.last_s = time_s if self.last_s is None else max(self.last_s, time_s)
        was_gone, self.gone, self.misses = self.gone, False, 0
        return was_gone

    def lack(self, time_s: float, is_alike: bool = False) -> bool:
        """A look does not show it; whether it is held to be gone from now on.

        Args:
            is_alike: the look is of its like, which report whenever it does: GPUs of one exporter.
        """
        if self.gone:
            return False
        self.misses += 1
        silent_s = 0.0 if self.last_s is None else time_s - self.last_s
        if self.misses == 1:
            due_s = self.cadence_s if self.cadence_s is not None else 0.0 if is_alike else PATIENCE_S
            self.paced = self.together and silent_s >= _DUE * due_s
        falls = self.falls if time_s - self.fell_s < _DAY_S else 0
        if self.paced and falls < _FLAPS:
            self.gone = self.misses >= MISSES or (self.cadence_s or silent_s) >= PATIENCE_S
        else:
            late_s = _UNKNOWN_S if self.cadence_s is None else _INTERVALS_LATE * self.cadence_s
            late_s = min(late_s * 2.0 ** max(0, falls - _FLAPS), _DAY_S)
            self.gone = self.misses >= MISSES and silent_s >= late_s
        if self.gone:
            self.falls, self.fell_s = falls + 1, time_s
        return self.gone

    def state(self) -> dict[str, Any]:
        """As plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


_HOUR_S = 3600.0
# Rises told one by one; after them one in an hour, in two, in four ... in a day, until a day went without any.
_ONE_BY_ONE = 3


@dataclass(slots=True)
class RateLimit:
    """A counter that rises: what is told at once and what is held back and summed up."""

    count: int = 0
    told_s: float = 0.0
    rose_s: float = 0.0
    wait_s: float = _HOUR_S
    held: float = 0.0

    def add(self, increase: float, time_s: float) -> float:
        """One more rise; what is to be told now, with what was held back: 0 for nothing."""
        if self.count and time_s - self.rose_s >= _DAY_S:
            self.count, self.wait_s = 0, _HOUR_S
        self.rose_s = time_s
        self.held += increase
        return self.due(time_s)

    def due(self, time_s: float) -> float:
        """What was held back for long enough: 0 for nothing."""
        if not self.held:
            return 0.0
        if self.count < _ONE_BY_ONE:
            self.count += 1
        elif time_s - self.told_s >= self.wait_s:
            self.wait_s = min(2 * self.wait_s, _DAY_S)
        else:
            return 0.0
        increase, self.held, self.told_s = self.held, 0.0, time_s
        return increase

    def state(self) -> list[float]:
        """As plain JSON."""
        return [self.count, self.told_s, self.rose_s, self.wait_s, self.held]


def rate_limit(state: list[float]) -> RateLimit:
    """One of its state."""
    count, *times = state
    return RateLimit(int(count), *times)

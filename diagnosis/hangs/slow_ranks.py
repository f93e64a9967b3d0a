"""Ranks that hold the others up: each rank's own work a step, compared with that of its job's other ranks.

In synchronous training every rank's step lasts the same: the slowest rank's. What differs is how long a rank works
before it waits in a collective, and that the training hook measures (`work_ms`). A rank is slow whose work stands far
above the median of the others, on a scale of the median absolute deviation, in two looks one after another.

A rank's work is the median of what it told last: nodes tell of different seconds, and on a busy machine one report of
all ranks of a node lies a third above the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median

# Fewer ranks tell nothing of what is usual.
LEAST_RANKS = 4
# A rank that works so much longer than the median is slow; the ledger calls iterations slow by the same ratio.
_RATIO = 1.2
# Robust deviations above the median.
_FAR = 6.0
# Looks in which it stands out, one after another.
_LOOKS = 2
# A rank's newest reports, of which the median counts. A node sends so many after each change.
_REPORTS = 3
# Milliseconds a step: what is less is the clock's.
_LEAST_MS = 2.0


@dataclass(slots=True)
class RankWork:
    """What each rank of a run told last, and how often it stood out one after another."""

    work_ms: dict[int, float] = field(default_factory=dict)  # the median of its newest reports
    reports: dict[int, tuple[float, ...]] = field(default_factory=dict)
    times: dict[int, datetime] = field(default_factory=dict)
    looks: dict[int, int] = field(default_factory=dict)
    since: dict[int, datetime] = field(default_factory=dict)
    limit_ms: float | None = None
    changed: int = 0  # measures since the limit was computed

    def take(self, measured: Mapping[int, float], time: datetime) -> None:
        """One node's measures; what stands out is judged by what all ranks told last."""
        for rank, work in measured.items():
            if self.times.get(rank, time) <= time:
                told = self.reports[rank] = (*self.reports.get(rank, ())[1 - _REPORTS :], work)
                # Of fewer the newest counts: a first one is often of a warm-up.
                self.work_ms[rank], self.times[rank] = median(told) if len(told) == _REPORTS else work, time
                self.changed += 1
        limit = self._limit()
        if limit is None:
            return
        for rank in measured:
            if self.work_ms[rank] > limit:
                self.looks[rank] = self.looks.get(rank, 0) + 1
                self.since.setdefault(rank, time)
            else:
                self.looks.pop(rank, None)
                self.since.pop(rank, None)

    def slow(self) -> list[int]:
        """The ranks that are slow now."""
        limit = self._limit()
        if limit is None:
            return []
        found = [rank for rank, looks in self.looks.items() if looks >= _LOOKS and self.work_ms[rank] > limit]
        return sorted(found) if len(found) <= len(self.work_ms) // 4 or len(found) == 1 else []

    def usual_ms(self) -> float:
        """The median of all ranks."""
        return median(self.work_ms.values())

    def _limit(self) -> float | None:
        """Computed anew when a quarter of the ranks have told more: what a report costs does not grow with the job."""
        if len(self.work_ms) < LEAST_RANKS:
            return None
        if self.limit_ms is None or 4 * self.changed >= len(self.work_ms):
            self.limit_ms, self.changed = self._computed(), 0
        return self.limit_ms

    def _computed(self) -> float:
        middle = self.usual_ms()
        spread = median(abs(work - middle) for work in self.work_ms.values()) * 1.4826
        return max(middle * _RATIO, middle + _FAR * spread, middle + _LEAST_MS)

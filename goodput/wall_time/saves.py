"""How a run saves now: what its newest saves stalled, and how often they come. Every piece of advice goes by this.

    saves_now([[save, ...] of each attempt])
    save_s(saves), interval_s(saves)

A program is told how to save when it starts, so one attempt saves in one way: what an earlier attempt did differently
says nothing of the next save. Too few saves tell neither a stall nor an interval: then an older attempt is asked.

The stall is the mean, for what saves cost is their sum: where each fifth one goes to disk and the others to memory,
the middle one says nothing of the disk. The interval is the median: a stop, an evaluation or a slow hour stretches
some gaps and is accounted elsewhere.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from goodput.log.median import median
from goodput.timeline import Segment

# What an attempt did and what was kept of it: by its finished saves, and by where the next one began.
#
# An attempt that ended badly keeps what its last finished save holds. The next one tells better: it begins with the
# iteration that was loaded. Where that is an older one (a save that was broken, or in the memory of a lost node), what
# lay behind it was computed twice, and the first time was lost; where it is a newer one, a save was not told.

NEVER_MS = -(2**62)
ALWAYS_MS = 2**62


@dataclass(slots=True)
class AttemptProgress:
    """The iterations of one attempt as they were painted: what number was done when, and what was saved when.

    `first` = the iteration before its first one; None where no line tells a number.
    """

    first: int | None = None
    _numbers: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    _saved: list[tuple[int, int]] = field(default_factory=list)
    saved_ms: int | None = None  # what came before this moment is kept by a finished save

    @property
    def last(self) -> int | None:
        """The last iteration done."""
        return self._numbers[-1] if self._numbers else None

    @property
    def last_saved(self) -> int | None:
        """The last iteration that a finished save holds."""
        return self._saved[-1][0] if self._saved else None

    @property
    def newest_save(self) -> tuple[int, int] | None:
        """The iteration of the last finished save (0 = not told), and when what it holds was done, milliseconds."""
        return self._saved[-1] if self._saved else None

    @property
    def printed(self) -> int:
        """How many iterations its last line covered."""
        return self._counts[-1] if self._counts else 1

    def done(self, iteration: int | None, count: int, begin_ms: int, end_ms: int) -> None:
        """An iteration line was painted. One whose number goes back is left out: the order must hold."""
        if iteration is None or (self._numbers and iteration <= self._numbers[-1]):
            return
        if self.first is None:
            self.first = max(0, iteration - count)
        self._numbers.append(iteration)
        self._counts.append(count)
        self._begins.append(begin_ms)
        self._ends.append(end_ms)

    def end_of(self, iteration: int) -> tuple[int, int] | None:
        """The last iteration done up to a number, and when it was done; None where none was."""
        place = bisect_right(self._numbers, iteration) - 1
        return None if place < 0 else (self._numbers[place], self._ends[place])

    def saved(self, iteration: int, moment_ms: int) -> None:
        """A finished save holds an iteration, that was done at a moment."""
        self._saved.append((iteration, moment_ms))
        self.saved_ms = max(moment_ms, self.saved_ms if self.saved_ms is not None else moment_ms)

    def saved_now(self, moment_ms: int) -> None:
        """A finished save holds all that was done until now."""
        self.saved(self._numbers[-1] if self._numbers else 0, moment_ms)

    def kept_ms(self, resumed: int) -> int:
        """Until which moment the work is in a checkpoint of an iteration: all of it, none of it, or part."""
        saved = max((moment for iteration, moment in self._saved if iteration <= resumed), default=NEVER_MS)
        if self.last is None or resumed >= self.last:
            return saved if self.last_saved == resumed else ALWAYS_MS
        place = bisect_left(self._numbers, resumed)
        if self._numbers[place] == resumed:
            return max(saved, self._ends[place])
        done = self._numbers[place] - self._counts[place]
        if resumed <= done:  # before what the line covers
            return max(saved, self._ends[place - 1] if place else NEVER_MS)
        part = (resumed - done) / self._counts[place]
        return self._begins[place] + round(part * (self._ends[place] - self._begins[place]))


# An attempt with fewer finished saves tells too little of how it saves: two intervals are the least to have a middle.
LEAST_SAVES = 3


def saves_now(by_attempt: Sequence[Sequence[Segment]]) -> tuple[Segment, ...]:
    """The finished saves of the newest attempt that has at least three; where none has, those of the whole run.

    Args:
        by_attempt: the finished saves of each attempt, in the order of their starts.
    """
    enough = next((saves for saves in reversed(by_attempt) if len(saves) >= LEAST_SAVES), None)
    return tuple(save for saves in by_attempt for save in saves) if enough is None else tuple(enough)


def save_s(saves: Sequence[Segment]) -> float | None:
    """The mean stall, seconds; None of none."""
    return sum(save.length_ms for save in saves) / len(saves) / 1000 if saves else None


def interval_s(saves: Sequence[Segment]) -> float | None:
    """The median time from the end of a save to the beginning of the next, seconds; None of fewer than two."""
    middle = median(
        [after.start_ms - before.end_ms for before, after in pairwise(saves) if after.start_ms > before.end_ms]
    )
    return None if middle is None else middle / 1000

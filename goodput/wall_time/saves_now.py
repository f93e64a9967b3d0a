"""How a run saves now: what its newest saves stalled, and how often they come. Every piece of advice goes by this.

    saves_now([[save, ...] of each attempt])
    save_s(saves), interval_s(saves)

A program is told how to save when it starts, so one attempt saves in one way: what an earlier attempt did differently
says nothing of the next save. Too few saves tell neither a stall nor an interval: then an older attempt is asked.

The stall is the mean, for what saves cost is their sum: where each fifth one goes to disk and the others to memory,
the middle one says nothing of the disk. The interval is the median: a stop, an evaluation or a slow hour stretches
some gaps and is accounted elsewhere.
"""

from collections.abc import Sequence
from itertools import pairwise

from goodput.log.median import median
from goodput.timeline import Segment

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

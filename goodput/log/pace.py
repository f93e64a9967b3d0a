"""A log's pace from its iteration lines, one sample each, so that it can be kept up as lines come in."""

from collections.abc import Sequence
from dataclasses import dataclass

from goodput.log.median import Figures, Window, joined, median, median_of
from goodput.log.training_log import TICK_MS, LogLine, work_lines

# Iteration lines that follow no save tell the pace, if they are more than one in so many.
FEW = 4
# An iteration slower than this times the run's median is degraded; DESIGN fixes no figure, this is our choice.
DEGRADED_RATIO = 1.2


@dataclass(frozen=True, slots=True)
class Pace:
    """A log's normal speed: the median time of an iteration, and of what an iteration line covers; None without any."""

    iteration_ms: float | None
    print_ms: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """What an iteration line tells of the pace: an iteration's time, and what the line covers.

    `after_save` = the stall of a save was timed with it, and is taken out of `value_ms`.
    """

    value_ms: float
    print_ms: float
    after_save: bool

    def note(self, figures: tuple[Figures, Figures, Figures], windows: tuple[Window, Window]) -> None:
        """Add it to the figures of free lines, of lines after a save, and of what lines cover."""
        figures[1 if self.after_save else 0].add(self.value_ms, windows[0])
        figures[2].add(self.print_ms, windows[1])


def samples_of(lines: Sequence[LogLine]) -> list[Sample]:
    """A sample for each iteration line that tells what it covers; waits for data are no part of it."""
    found = []
    before: LogLine | None = None
    stall = 0
    for line in work_lines(lines):
        if line.kind == "checkpoint_save" and not line.background:
            stall += line.duration_ms or 0
        elif line.kind == "iteration":
            if line.span_ms is not None:
                net = max(0.0, line.span_ms - (line.data_ms or 0.0))
                timed = stall > TICK_MS and stall < net and _leaves_no_room(before, line, stall)
                value = (net - stall if timed else net) / line.iterations
                found.append(Sample(value, line.span_ms, timed))
            before, stall = line, 0
    return found


def _leaves_no_room(before: LogLine | None, line: LogLine, stall_ms: int) -> bool:
    """Whether a stall between two iteration lines is longer than the time that lies between what they cover."""
    if before is None or before.time_ms is None or line.begin_ms is None:
        return False
    return line.begin_ms - before.time_ms + TICK_MS < stall_ms


def pace_of(lines: Sequence[LogLine]) -> Pace:
    """The pace of a log, each iteration line counted once; lines after a save count only where nearly all are such."""
    samples = samples_of(lines)
    free = [one.value_ms for one in samples if not one.after_save]
    after_save = [one.value_ms for one in samples if one.after_save]
    few = len(free) * FEW < len(after_save)
    return Pace(median(free + after_save if few else free), median([one.print_ms for one in samples]))


def pace_from(free: Figures, after_save: Figures, prints: Figures) -> Pace:
    """The same of figures that were kept.

    Raises:
        OutsideError: a median is not among what was kept one by one.
    """
    few = free.count * FEW < after_save.count
    return Pace(median_of(joined([free, after_save]) if few else free), median_of(prints))

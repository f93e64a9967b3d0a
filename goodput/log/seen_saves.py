"""Saves that a checkpoint directory shows: what the log does not tell of them, as lines of the log.

    with_saves(log, seen_saves(lines), starts_ms)

A directory tells the iteration of a save and when its first and last file were written. Where the log is silent about
that save, it still bounds the lost work: what came before it was kept. Where nobody logged iterations at all, two saves
of one attempt tell how many there were between them, as a log that prints a line a save.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from goodput.log.training_log import LogLine

# The clocks of a file server and of the node that logs differ by no more.
_SLACK_MS = 2_000


@dataclass(frozen=True, slots=True)
class SeenSave:
    """A save in a directory: its first and last file's times. One that is not `finished` kept nothing."""

    iteration: int
    begin_ms: int
    end_ms: int
    finished: bool


def seen_saves(lines: Sequence[LogLine]) -> list[SeenSave]:
    """The saves that a directory's lines tell, by their end; one that was seen begun and then whole is one."""
    found: set[SeenSave] = set()
    for line in lines:
        if line.iteration is not None and line.time_ms is not None:
            begin = line.time_ms - (line.duration_ms or 0)
            found.add(SeenSave(line.iteration, begin, line.time_ms, line.kind == "checkpoint_save"))
    whole = [save for save in found if save.finished]
    kept = [save for save in found if save.finished or not any(_same(save, other) for other in whole)]
    return sorted(kept, key=lambda save: (save.end_ms, save.iteration))


def _same(begun: SeenSave, whole: SeenSave) -> bool:
    """Whether a save that was seen begun is one that was whole later."""
    return begun.iteration == whole.iteration and abs(begun.begin_ms - whole.begin_ms) <= _SLACK_MS


def with_saves(log: Sequence[LogLine], saves: Sequence[SeenSave], starts_ms: Sequence[int] = ()) -> list[LogLine]:
    """The log with the saves that it does not tell, each where it ended.

    Args:
        starts_ms: when the run's jobs started, for a run that logs no iterations.
    """
    if not saves:
        return list(log)
    if not any(line.kind == "iteration" for line in log):
        return _by_time([*log, *_inferred(saves, starts_ms)])
    work = _Work.of(log)
    told = {line.iteration for line in log if line.kind == "checkpoint_save"}
    nameless = sorted(
        line.time_ms
        for line in log
        if line.kind == "checkpoint_save" and line.iteration is None and line.time_ms is not None
    )
    begun = {line.iteration for line in log if line.kind == "checkpoint_save_start"}
    added = []
    for save in saves:
        if save.iteration in told or _told_then(nameless, save):
            continue
        if save.finished:
            added.append(_line_of(save, work))
        elif save.iteration not in begun:
            added.append(LogLine("checkpoint_save_start", save.begin_ms, save.iteration))
    return _placed(log, added)


def _told_then(nameless: Sequence[int], save: SeenSave) -> bool:
    """Whether the log tells a finished save without an iteration at that time, by the sorted times of such saves."""
    place = bisect_left(nameless, save.begin_ms - _SLACK_MS)
    return place < len(nameless) and nameless[place] <= save.end_ms + _SLACK_MS


@dataclass(frozen=True, slots=True)
class _Work:
    """The times of iteration lines, sorted; of each the earliest moment that it or a later one covers."""

    times: Sequence[int]
    begins: Sequence[float]

    @classmethod
    def of(cls, log: Sequence[LogLine]) -> "_Work":
        dated = [line for line in log if line.kind == "iteration" and line.time_ms is not None]
        told = sorted((x.time_ms or 0, math.inf if x.begin_ms is None else x.begin_ms) for x in dated)
        return cls([time for time, _begin in told], _least_from([begin for _time, begin in told]))


def _least_from(values: Sequence[float]) -> list[float]:
    """Of each place the least of its value and all that follow."""
    return [*accumulate(reversed(values), min)][::-1]


def _line_of(save: SeenSave, work: _Work) -> LogLine:
    """The end of a save: one while which iterations went on was written in the background and stalled no one here."""
    first, then = bisect_right(work.times, save.begin_ms + _SLACK_MS), bisect_right(work.times, save.end_ms)
    before = work.times[first - 1] if first else None
    after = work.begins[then] if then < len(work.begins) else math.inf
    if first < then or before is None or after < save.end_ms - _SLACK_MS:
        return LogLine("checkpoint_save", save.end_ms, save.iteration, background=True)
    # Files are written last: the stall began with the gap in the iterations, if not with the first file.
    stall = max(0, save.end_ms - before)
    return LogLine("checkpoint_save", save.end_ms, save.iteration, duration_ms=stall)


def _placed(log: Sequence[LogLine], added: Sequence[LogLine]) -> list[LogLine]:
    """Each added line behind the last one that is not later; where lines bear no time, behind its iteration."""
    moments = _least_from([math.inf if x.time_ms is None else x.time_ms for x in log])
    numbers = _least_from([x.iteration or 0 if x.kind == "iteration" and x.time_ms is None else math.inf for x in log])
    lines: list[LogLine] = []
    done = 0
    for line in _by_time(added):
        place = max(bisect_right(moments, line.time_ms or 0), bisect_right(numbers, line.iteration or 0), done)
        lines += [*log[done:place], line]
        done = place
    return [*lines, *log[done:]]


def _inferred(saves: Sequence[SeenSave], starts_ms: Sequence[int]) -> list[LogLine]:
    """Saves alone: between two of one job lie the iterations that their names differ by.

    Of the first save of a job it is known how many iterations it covers, not since when.
    """
    lines = [LogLine("training_start", start) for start in starts_ms]
    last: SeenSave | None = None
    for save in saves:
        advanced = 0 if last is None else save.iteration - last.iteration
        same = last is not None and not any(last.end_ms <= start <= save.begin_ms for start in starts_ms)
        span = float(save.begin_ms - last.end_ms) if last is not None and same and advanced > 0 else None
        if span is None or span >= 0:
            lines.append(LogLine("iteration", save.begin_ms, save.iteration, max(1, advanced), span))
        if save.finished:
            stall = save.end_ms - save.begin_ms
            lines.append(LogLine("checkpoint_save", save.end_ms, save.iteration, duration_ms=stall))
            last = save
        else:
            lines.append(LogLine("checkpoint_save_start", save.begin_ms, save.iteration))
    return lines


def _by_time(lines: Sequence[LogLine]) -> list[LogLine]:
    return sorted(lines, key=lambda line: line.time_ms or 0)

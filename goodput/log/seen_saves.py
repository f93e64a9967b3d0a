"""Saves that a checkpoint directory shows: what the log does not tell of them, as lines of the log.

    with_saves(log, seen_saves(lines), starts_ms)

A directory tells the iteration of a save and when its first and last file were written. Where the log is silent about
that save, it still bounds the lost work: what came before it was kept. Where nobody logged iterations at all, two saves
of one attempt tell how many there were between them, as a log that prints a line a save.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    dated = [line for line in log if line.kind == "iteration" and line.time_ms is not None]
    told = {line.iteration for line in log if line.kind == "checkpoint_save"}
    begun = {line.iteration for line in log if line.kind == "checkpoint_save_start"}
    added = []
    for save in saves:
        if save.iteration in told or _told_then(log, save):
            continue
        if save.finished:
            added.append(_line_of(save, dated))
        elif save.iteration not in begun:
            added.append(LogLine("checkpoint_save_start", save.begin_ms, save.iteration))
    return _placed(log, added)


def _told_then(log: Sequence[LogLine], save: SeenSave) -> bool:
    """Whether the log tells a finished save without an iteration at that time."""
    return any(
        line.kind == "checkpoint_save"
        and line.iteration is None
        and line.time_ms is not None
        and save.begin_ms - _SLACK_MS <= line.time_ms <= save.end_ms + _SLACK_MS
        for line in log
    )


def _line_of(save: SeenSave, dated: Sequence[LogLine]) -> LogLine:
    """The end of a save: one while which iterations went on was written in the background and stalled no one here."""
    times = [(line.time_ms or 0, line.begin_ms) for line in dated]
    during = any(save.begin_ms + _SLACK_MS < time <= save.end_ms for time, _begin in times)
    before = max((time for time, _begin in times if time <= save.begin_ms + _SLACK_MS), default=None)
    after = min((begin for time, begin in times if time > save.end_ms and begin is not None), default=None)
    if during or before is None or (after is not None and after < save.end_ms - _SLACK_MS):
        return LogLine("checkpoint_save", save.end_ms, save.iteration, background=True)
    # Files are written last: the stall began with the gap in the iterations, if not with the first file.
    stall = max(0, save.end_ms - before)
    return LogLine("checkpoint_save", save.end_ms, save.iteration, duration_ms=stall)


def _placed(log: Sequence[LogLine], added: Sequence[LogLine]) -> list[LogLine]:
    """Each added line behind the last one that is not later; where lines bear no time, behind its iteration."""
    lines = list(log)
    for line in added:
        place = 0
        for at, other in enumerate(lines, start=1):
            if other.time_ms is None:
                earlier = other.kind == "iteration" and (other.iteration or 0) <= (line.iteration or 0)
            else:
                earlier = other.time_ms <= (line.time_ms or 0)
            place = at if earlier else place
        lines.insert(place, line)
    return lines


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

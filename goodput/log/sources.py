"""One log of a run out of several: what the program's hook, its spans and its own log tell of the same work.

    merged({"hook": lines, "training": others})     # the hook's lines, and the starts that it did not see

The best source of a start of the program tells of it; another tells alone of what that one never does (saves, say),
and of the starts that it did not see. A run with one source is read as it is.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from goodput.log.training_log import Session, TrainingLine, sessions
from store.records.event_sources import RUN_LOGS

# Saves that a checkpoint directory shows: what the log does not tell of them, as lines of the log.
#
#     with_saves(log, seen_saves(lines), starts_ms)
#
# A directory tells the iteration of a save and when its first and last file were written. Where the log is silent about
# that save, it still bounds the lost work: what came before it was kept. Where nobody logged iterations at all, two
# saves of one attempt tell how many there were between them, as a log that prints a line a save.

# The clocks of a file server and of the node that logs differ by no more.
_SLACK_MS = 2_000


@dataclass(frozen=True, slots=True)
class DirectorySave:
    """A save in a directory: its first and last file's times. One that is not `finished` kept nothing."""

    iteration: int
    begin_ms: int
    end_ms: int
    finished: bool


def directory_saves(lines: Sequence[TrainingLine]) -> list[DirectorySave]:
    """The saves that a directory's lines tell, by their end; one that was seen begun and then whole is one."""
    found: set[DirectorySave] = set()
    for line in lines:
        if line.iteration is not None and line.time_ms is not None and line.kind != "checkpoint_torn":
            begin = line.time_ms - (line.duration_ms or 0)
            found.add(DirectorySave(line.iteration, begin, line.time_ms, line.kind == "checkpoint_save"))
    whole = [save for save in found if save.finished]
    kept = [save for save in found if save.finished or not any(_same(save, other) for other in whole)]
    return sorted(kept, key=lambda save: (save.end_ms, save.iteration))


def _same(begun: DirectorySave, whole: DirectorySave) -> bool:
    """Whether a save that was seen begun is one that was whole later."""
    return begun.iteration == whole.iteration and abs(begun.begin_ms - whole.begin_ms) <= _SLACK_MS


def without_torn(log: Sequence[TrainingLine], seen: Sequence[TrainingLine]) -> list[TrainingLine]:
    """The log, where a save that a directory shows to be torn was begun and never ended, whatever the program says.

    Args:
        seen: the lines of the directory: what was told of an iteration before it was found torn is that save.
    """
    torn: dict[int | None, int] = {}
    for line in seen:
        if line.kind == "checkpoint_torn" and line.time_ms is not None:
            torn[line.iteration] = max(line.time_ms, torn.get(line.iteration, line.time_ms))
    return [
        replace(line, kind="checkpoint_save_start", duration_ms=None, background=False)
        if line.kind == "checkpoint_save" and line.time_ms is not None and line.time_ms <= torn.get(line.iteration, -1)
        else line
        for line in log
    ]


def with_saves(
    log: Sequence[TrainingLine], saves: Sequence[DirectorySave], starts_ms: Sequence[int] = ()
) -> list[TrainingLine]:
    """The log with the saves that it does not tell, each where it ended.

    Args:
        starts_ms: when the run's jobs started, for a run that logs no iterations.
    """
    if not saves:
        return list(log)
    if not any(line.kind == "iteration" for line in log):
        return _by_time([*log, *_inferred(saves, starts_ms)])
    work = _Work.of(log)
    reported = {line.iteration for line in log if line.kind == "checkpoint_save"}
    nameless = sorted(
        line.time_ms
        for line in log
        if line.kind == "checkpoint_save" and line.iteration is None and line.time_ms is not None
    )
    begun = {line.iteration for line in log if line.kind == "checkpoint_save_start"}
    added = []
    for save in saves:
        if save.iteration in reported or _reported_then(nameless, save):
            continue
        if save.finished:
            added.append(_line_of(save, work))
        elif save.iteration not in begun:
            added.append(TrainingLine("checkpoint_save_start", save.begin_ms, save.iteration))
    return _in_log_order(log, added)


def _reported_then(nameless: Sequence[int], save: DirectorySave) -> bool:
    """Whether the log tells a finished save without an iteration at that time, by the sorted times of such saves."""
    place = bisect_left(nameless, save.begin_ms - _SLACK_MS)
    return place < len(nameless) and nameless[place] <= save.end_ms + _SLACK_MS


@dataclass(frozen=True, slots=True)
class _Work:
    """The times of iteration lines, sorted; of each the earliest moment that it or a later one covers."""

    times: Sequence[int]
    begins: Sequence[float]

    @classmethod
    def of(cls, log: Sequence[TrainingLine]) -> "_Work":
        dated = [line for line in log if line.kind == "iteration" and line.time_ms is not None]
        reported = sorted((x.time_ms or 0, math.inf if x.begin_ms is None else x.begin_ms) for x in dated)
        return cls([time for time, _begin in reported], _least_from([begin for _time, begin in reported]))


def _least_from(values: Sequence[float]) -> list[float]:
    """Of each place the least of its value and all that follow."""
    return [*accumulate(reversed(values), min)][::-1]


def _line_of(save: DirectorySave, work: _Work) -> TrainingLine:
    """The end of a save: one while which iterations went on was written in the background and stalled no one here."""
    first, then = bisect_right(work.times, save.begin_ms + _SLACK_MS), bisect_right(work.times, save.end_ms)
    before = work.times[first - 1] if first else None
    after = work.begins[then] if then < len(work.begins) else math.inf
    if first < then or before is None or after < save.end_ms - _SLACK_MS:
        return TrainingLine("checkpoint_save", save.end_ms, save.iteration, background=True)
    # Files are written last: the stall began with the gap in the iterations, if not with the first file.
    stall = max(0, save.end_ms - before)
    return TrainingLine("checkpoint_save", save.end_ms, save.iteration, duration_ms=stall)


def _in_log_order(log: Sequence[TrainingLine], added: Sequence[TrainingLine]) -> list[TrainingLine]:
    """Each added line behind the last one that is not later; where lines bear no time, behind its iteration."""
    moments = _least_from([math.inf if x.time_ms is None else x.time_ms for x in log])
    numbers = _least_from([x.iteration or 0 if x.kind == "iteration" and x.time_ms is None else math.inf for x in log])
    lines: list[TrainingLine] = []
    done = 0
    for line in _by_time(added):
        place = max(bisect_right(moments, line.time_ms or 0), bisect_right(numbers, line.iteration or 0), done)
        lines += [*log[done:place], line]
        done = place
    return [*lines, *log[done:]]


def _inferred(saves: Sequence[DirectorySave], starts_ms: Sequence[int]) -> list[TrainingLine]:
    """Saves alone: between two of one job lie the iterations that their names differ by.

    Of the first save of a job it is known how many iterations it covers, not since when.
    """
    lines = [TrainingLine("training_start", start) for start in starts_ms]
    last: DirectorySave | None = None
    for save in saves:
        advanced = 0 if last is None else save.iteration - last.iteration
        same = last is not None and not any(last.end_ms <= start <= save.begin_ms for start in starts_ms)
        span = float(save.begin_ms - last.end_ms) if last is not None and same and advanced > 0 else None
        if span is None or span >= 0:
            lines.append(TrainingLine("iteration", save.begin_ms, save.iteration, max(1, advanced), span))
        if save.finished:
            stall = save.end_ms - save.begin_ms
            lines.append(TrainingLine("checkpoint_save", save.end_ms, save.iteration, duration_ms=stall))
            last = save
        else:
            lines.append(TrainingLine("checkpoint_save_start", save.begin_ms, save.iteration))
    return lines


def _by_time(lines: Sequence[TrainingLine]) -> list[TrainingLine]:
    return sorted(lines, key=lambda line: line.time_ms or 0)


# What a source that never tells of it lets another one tell.
_SHARED_KINDS: Mapping[str, frozenset[str]] = {
    "save": frozenset({"checkpoint_save_start", "checkpoint_save"}),
    "load": frozenset({"checkpoint_load"}),
    "evaluation": frozenset({"evaluation"}),
    "data": frozenset({"data_wait"}),
}


# Logs print whole seconds, and clocks differ.
_COARSE_MS = 2_000


@dataclass(frozen=True, slots=True)
class _SourceSpan:
    """When a start of the program ran as one source tells it, and which kinds that source lends to others."""

    begin_ms: int
    end_ms: int
    lent: frozenset[str]


def merged(by_source: Mapping[str, Sequence[TrainingLine]]) -> list[TrainingLine]:
    """The lines of a run in the order in which they were written, each piece of work once.

    Args:
        by_source: the lines of each source, each in its own order.
    """
    names = [name for name in RUN_LOGS if by_source.get(name)]
    names += [name for name in by_source if name not in RUN_LOGS and by_source[name]]
    with_work = [name for name in names if _works(by_source[name])] or names
    if not with_work:
        return []
    ordered = [*with_work, *(name for name in names if name not in with_work)]
    chosen = _with_times(by_source[ordered[0]])
    spans = _spans(by_source[ordered[0]])
    for name in ordered[1:]:
        lines = by_source[name]
        work = sorted((moment, line.iteration or 0) for moment, line in chosen if line.kind == "iteration")
        added = [placed for session in sessions(lines) for placed in _unreported(session, spans)]
        chosen += [(_behind(moment, line, work), line) for moment, line in added]
        spans += _spans(lines) if _works(lines) else []
    if len(chosen) > len(by_source[ordered[0]]):
        chosen.sort(key=lambda placed: placed[0])
    return [line for _moment, line in chosen]


def _works(lines: Sequence[TrainingLine]) -> bool:
    return any(line.kind == "iteration" for line in lines)


def _spans(lines: Sequence[TrainingLine]) -> list[_SourceSpan]:
    """The times of a source's starts; `lent` is what none of its lines tells."""
    kinds = {line.kind for line in lines}
    lent = frozenset[str]().union(*(group for group in _SHARED_KINDS.values() if not group & kinds))
    found = []
    for session in sessions(lines):
        begin, end = session.begin_ms, _last_ms(session)
        if begin is not None and end is not None:
            found.append(_SourceSpan(begin, end, lent))
    return found


def _last_ms(session: Session) -> int | None:
    return max((line.time_ms for line in session.lines if line.time_ms is not None), default=None)


def _unreported(session: Session, spans: Collection[_SourceSpan]) -> list[tuple[int, TrainingLine]]:
    """The lines of a start that no better source told: all of one that it did not see, else what it lends."""
    begin, end = session.begin_ms, _last_ms(session)
    if begin is None or end is None:  # nobody knows when it was: it may be any of those that were told
        return [] if spans else _with_times(session.lines)
    over = [span for span in spans if span.begin_ms <= end and begin <= span.end_ms]
    if not over:
        return _with_times(session.lines)
    lent = frozenset[str]().union(*(span.lent for span in over)) | {"training_error"}
    return [(moment, line) for moment, line in _with_times(session.lines) if line.kind in lent]


def _behind(moment: int, line: TrainingLine, work: Sequence[tuple[int, int]]) -> int:
    """When a line of a coarser clock is to be read: not before the iteration that it speaks of."""
    if line.kind == "iteration" or line.iteration is None:
        return moment
    near = work[bisect_left(work, (moment - _COARSE_MS, 0)) : bisect_left(work, (moment + _COARSE_MS, 0))]
    return max((at for at, iteration in near if at > moment and iteration <= line.iteration), default=moment)


def _with_times(lines: Sequence[TrainingLine]) -> list[tuple[int, TrainingLine]]:
    """The lines with their times; one without stands behind the one before it."""
    moment = next((line.time_ms for line in lines if line.time_ms is not None), 0)
    placed = []
    for line in lines:
        moment = moment if line.time_ms is None else max(moment, line.time_ms)
        placed.append((moment, line))
    return placed

"""One log of a run out of several: what the program's hook, its spans and its own log tell of the same work.

    merged({"hook": lines, "training": others})     # the hook's lines, and the starts that it did not see

The best source of a start of the program tells of it; another tells alone of what that one never does (saves, say),
and of the starts that it did not see. A run with one source is read as it is.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from goodput.log.training_log import LogLine, Session, sessions
from store.sources import RUN_LOGS

# What a source that never tells of it lets another one tell.
_LENT: Mapping[str, frozenset[str]] = {
    "save": frozenset({"checkpoint_save_start", "checkpoint_save"}),
    "load": frozenset({"checkpoint_load"}),
    "evaluation": frozenset({"evaluation"}),
    "data": frozenset({"data_wait"}),
}


# Logs print whole seconds, and clocks differ.
_COARSE_MS = 2_000


@dataclass(frozen=True, slots=True)
class _Span:
    """When a start of the program ran as one source tells it, and which kinds that source lends to others."""

    begin_ms: int
    end_ms: int
    lent: frozenset[str]


def merged(by_source: Mapping[str, Sequence[LogLine]]) -> list[LogLine]:
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
    chosen = _placed(by_source[ordered[0]])
    spans = _spans(by_source[ordered[0]])
    for name in ordered[1:]:
        lines = by_source[name]
        work = sorted((moment, line.iteration or 0) for moment, line in chosen if line.kind == "iteration")
        added = [placed for session in sessions(lines) for placed in _not_told(session, spans)]
        chosen += [(_behind(moment, line, work), line) for moment, line in added]
        spans += _spans(lines) if _works(lines) else []
    if len(chosen) > len(by_source[ordered[0]]):
        chosen.sort(key=lambda placed: placed[0])
    return [line for _moment, line in chosen]


def _works(lines: Sequence[LogLine]) -> bool:
    return any(line.kind == "iteration" for line in lines)


def _spans(lines: Sequence[LogLine]) -> list[_Span]:
    """The times of a source's starts; `lent` is what none of its lines tells."""
    kinds = {line.kind for line in lines}
    lent = frozenset[str]().union(*(group for group in _LENT.values() if not group & kinds))
    found = []
    for session in sessions(lines):
        begin, end = session.begin_ms, _last_ms(session)
        if begin is not None and end is not None:
            found.append(_Span(begin, end, lent))
    return found


def _last_ms(session: Session) -> int | None:
    return max((line.time_ms for line in session.lines if line.time_ms is not None), default=None)


def _not_told(session: Session, spans: Collection[_Span]) -> list[tuple[int, LogLine]]:
    """The lines of a start that no better source told: all of one that it did not see, else what it lends."""
    begin, end = session.begin_ms, _last_ms(session)
    if begin is None or end is None:  # nobody knows when it was: it may be any of those that were told
        return [] if spans else _placed(session.lines)
    over = [span for span in spans if span.begin_ms <= end and begin <= span.end_ms]
    if not over:
        return _placed(session.lines)
    lent = frozenset[str]().union(*(span.lent for span in over)) | {"training_error"}
    return [(moment, line) for moment, line in _placed(session.lines) if line.kind in lent]


def _behind(moment: int, line: LogLine, work: Sequence[tuple[int, int]]) -> int:
    """When a line of a coarser clock is to be read: not before the iteration that it speaks of."""
    if line.kind == "iteration" or line.iteration is None:
        return moment
    near = work[bisect_left(work, (moment - _COARSE_MS, 0)) : bisect_left(work, (moment + _COARSE_MS, 0))]
    return max((at for at, iteration in near if at > moment and iteration <= line.iteration), default=moment)


def _placed(lines: Sequence[LogLine]) -> list[tuple[int, LogLine]]:
    """The lines with their times; one without stands behind the one before it."""
    moment = next((line.time_ms for line in lines if line.time_ms is not None), 0)
    placed = []
    for line in lines:
        moment = moment if line.time_ms is None else max(moment, line.time_ms)
        placed.append((moment, line))
    return placed

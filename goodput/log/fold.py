"""A run's log folded: a plain stretch of iteration lines is one line, the few that tell more stay as they are.

    log = folded(rows)                     # all rows of a run's log
    log = added(log, more)                 # what came in since; StaleError: the log must be read again
    account(RunRecords(run, jobs, log=log.lines(), pace=log.pace(), ...))

The ledger of the folded log is that of the whole log, to the millisecond. Why: docs/goodput.md.
The newest lines are not folded yet (`tail`): what comes a little late finds its place among them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from goodput.log.chapter import Chapter
from goodput.log.median import OutsideError, Window, joined, narrower, window_around
from goodput.log.pace import DEGRADED_RATIO, Pace, Sample, pace_from, samples_of
from goodput.log.rows import ORDERS, LogRow, forwards, order_of
from goodput.log.training_log import LogLine

# Lines that stay unfolded, at least; half as many again are folded at once.
TAIL = 64
# A chapter is what is read again, at least, for a late line that falls into it.
CHAPTER = 4096
# A line is folded only if it is well within what is not slow, so that a median that moves a little changes nothing.
_PLAIN_RATIO = 1.1
_MARGIN = 1 + 1e-9


class StaleError(ValueError):
    """What is to be added cannot be: a line belongs before what is folded, or what is folded must be told apart.

    `row` is the earliest line that came late; None: all must be read again.
    """

    def __init__(self, row: LogRow | None = None) -> None:
        super().__init__("the log must be read again")
        self.row = row


class PrunedError(LookupError):
    """What must be read again is no longer there: what is folded knows more."""


@dataclass(slots=True)
class FoldedLog:
    """A whole log of one source. `order` = a place in ORDERS; `windows` = of iterations' times, of what lines cover.

    `loaded` = the iterations that the starts in its chapters go back to, sorted.
    """

    order: int = 0
    windows: tuple[Window, Window] = (Window(), Window())
    chapters: list[Chapter] = field(default_factory=lambda: [Chapter()])
    tail: list[LogRow] = field(default_factory=list)
    source: str = ""
    loaded: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The rows in it."""
        return sum(chapter.count for chapter in self.chapters) + len(self.tail)

    def lines(self) -> list[LogLine]:
        """What `account` reads in the place of the log."""
        return [*(line for chapter in self.chapters for line in chapter.lines), *(row.line for row in self.tail)]

    def pace(self) -> Pace:
        """The pace of all its rows.

        Raises:
            StaleError: the median has left what is kept, or a folded line would be slow now.
        """
        free, saved, prints = (joined(parts) for parts in zip(*(one.figures for one in self.chapters), strict=True))
        for sample in self.chapters[-1].open_samples([row.line for row in self.tail]):
            sample.note((free, saved, prints), self.windows)
        try:
            pace = pace_from(free, saved, prints)
        except OutsideError as error:
            raise StaleError from error
        slowest = max(chapter.slowest_ms for chapter in self.chapters)
        if slowest and (pace.iteration_ms is None or slowest * _MARGIN > DEGRADED_RATIO * pace.iteration_ms):
            raise StaleError
        return pace


def folded(rows: Sequence[LogRow], source: str = "", cuts_ms: Sequence[int] = ()) -> FoldedLog:
    """The log of all the rows that there are of a run.

    Args:
        cuts_ms: moments at which one job's lines may end and another's begin, sorted: no stretch goes over them.
    """
    order, ordered = order_of(rows)
    samples = samples_of([row.line for row in ordered])
    windows = window_around([one.value_ms for one in samples]), window_around([one.print_ms for one in samples])
    log = FoldedLog(order, windows, tail=ordered, source=source)
    _fold_tail(log, _usual_ms(samples), cuts_ms)
    return log


def added(log: FoldedLog, rows: Iterable[LogRow], cuts_ms: Sequence[int] = ()) -> FoldedLog:
    """The log with rows that were not in it; the given one is used up.

    Raises:
        StaleError: it must be read again, from the chapter of `StaleError.row` on.
    """
    key = ORDERS[log.order]
    known = {key(row) for row in log.tail}
    fresh = sorted((row for row in rows if key(row) not in known), key=key)
    if not fresh:
        return log
    last = log.chapters[-1]
    if last.end is not None and key(fresh[0]) <= last.end:
        raise StaleError(fresh[0])
    log.tail = sorted([*log.tail, *fresh], key=key)
    if not forwards(log.tail, last.end_ms):
        raise StaleError
    lines = [row.line for row in log.tail]
    asked = _loaded_in(last.carry, lines) | _kept_in(lines)
    if any(chapter.hides(number) for number in asked for chapter in log.chapters):
        raise StaleError
    if len(log.tail) > TAIL + TAIL // 2:
        _fold_tail(log, log.pace().iteration_ms, cuts_ms)
    return log


def continued(log: FoldedLog, rows: Iterable[LogRow], cuts_ms: Sequence[int] = ()) -> FoldedLog:
    """A log whose lines are pruned, with the rows that come after what is folded; the given one is used up.

    What came late is left out, for what it belongs to is no more. An iteration that the rows go back to may lie within
    a stretch: then the ledger takes the stretch as even.
    """
    key = ORDERS[log.order]
    known, end = {key(row) for row in log.tail}, log.chapters[-1].end
    fresh = [row for row in rows if key(row) not in known and (end is None or key(row) > end)]
    log.tail = sorted([*log.tail, *fresh], key=key)
    if len(log.tail) > TAIL + TAIL // 2:
        try:
            usual_ms = log.pace().iteration_ms
        except StaleError:
            usual_ms = None
        _fold_tail(log, usual_ms, cuts_ms)
    return log


def cut_before(log: FoldedLog, row: LogRow) -> tuple[FoldedLog, int]:
    """The log up to the chapter that a late row belongs to, and the time from which the store's rows are to be read."""
    place = ORDERS[log.order](row)
    kept = [chapter for chapter in log.chapters if chapter.end is not None and chapter.end < place]
    dropped = log.chapters[len(kept) :]
    oldest = [chapter.oldest_us for chapter in dropped if chapter.oldest_us is not None]
    since_us = min([row.stored_us, *oldest, *(one.stored_us for one in log.tail)])
    return replace(log, chapters=kept or [Chapter()], tail=[]), since_us


def _usual_ms(samples: Sequence[Sample]) -> float | None:
    """The middle of all: what is folded must only be near it."""
    values = sorted(one.value_ms for one in samples)
    return values[len(values) // 2] if values else None


def _kept_in(lines: Sequence[LogLine]) -> set[int]:
    """The iterations that saves in the background keep: the ledger asks when they ended."""
    return {line.iteration or 0 for line in lines if line.background}


def _loaded_in(before: Sequence[LogLine], lines: Sequence[LogLine]) -> set[int]:
    """The iterations that starts of the program go back to: the ledger asks when they ended, in any part of the log.

    Args:
        before: the lines just before, of which the same was asked when they came.
    """
    asked: set[int] = set()
    last: int | None = None
    for place, line in enumerate([*before, *lines], start=-len(before)):
        if line.kind in ("checkpoint_load", "training_start"):
            last = None
            if line.kind == "checkpoint_load" and line.iteration is not None and place >= 0:
                asked.add(line.iteration)
        elif (line.kind == "iteration" or line.tells_end_of_work) and line.iteration is not None:
            resumed = line.iteration - line.iterations
            if place >= 0 and (last is None or resumed < last):
                asked.add(resumed)
            last = line.iteration
    return asked


def _fold_tail(log: FoldedLog, usual_ms: float | None, cuts_ms: Sequence[int]) -> None:
    """Fold all of the tail but its newest rows."""
    limit = 0.0 if usual_ms is None else _PLAIN_RATIO * usual_ms
    key = ORDERS[log.order]
    chapter = log.chapters[-1]
    lines = [row.line for row in log.tail]
    # A start without a time may be accounted after starts that the log tells later.
    log.loaded = sorted({*log.loaded, *_loaded_in(chapter.carry, lines)})
    asked = sorted({*log.loaded, *_kept_in(lines)})
    done = log.tail[:-TAIL]
    while done:
        if chapter.count >= CHAPTER:
            chapter = chapter.successor()
            log.chapters.append(chapter)
        part, done = done[: CHAPTER - chapter.count], done[CHAPTER - chapter.count :]
        for line in [row.line for row in part]:
            chapter.fold(line, limit, asked, cuts_ms)
        chapter.note([row.line for row in part], log.windows)
        chapter.close(part, key(part[-1]))
    log.tail = log.tail[-TAIL:]
    _narrow(log)


def _narrow(log: FoldedLog) -> None:
    """Keep fewer figures where they have become many."""
    free, saved, prints = (joined(parts) for parts in zip(*(one.figures for one in log.chapters), strict=True))
    windows = narrower(joined([free, saved]), log.windows[0]), narrower(prints, log.windows[1])
    if windows != log.windows:
        log.windows = windows
        for chapter in log.chapters:
            for figures, window in zip(chapter.figures, (windows[0], windows[0], windows[1]), strict=True):
                figures.narrow(window)


def brought_up(
    log: FoldedLog,
    fresh: Sequence[LogRow],
    reread: Callable[[int | None], list[LogRow]],
    cuts_ms: Sequence[int] = (),
) -> FoldedLog:
    """The log with rows that came in; what they touch is read again, and no more. The given one is used up.

    Args:
        reread: all rows of the run, new ones too, stored for a time at or after so many microseconds since 1970.
        cuts_ms: as for `folded`; all is read again where one of them is news to the log.

    Raises:
        PrunedError: fewer are there than went in.
    """
    expected, source = log.count + len(fresh), log.source
    if any(chapter.crosses(cuts_ms) for chapter in log.chapters):
        rows = reread(None)
        if len(rows) >= expected:
            return folded(rows, source, cuts_ms)
        # The lines of a stretch are pruned: it stays as it is.
    try:
        return _checked(added(log, fresh, cuts_ms))
    except StaleError as stale:
        late = stale.row
    if late is not None:
        part, since_us = cut_before(log, late)
        key, end = ORDERS[part.order], part.chapters[-1].end
        rows = [row for row in reread(since_us) if end is None or key(row) > end]
        if part.count + len(rows) < expected:
            raise PrunedError
        try:
            return _checked(added(part, rows, cuts_ms))
        except StaleError:
            pass
    rows = reread(None)
    if len(rows) < expected:
        raise PrunedError
    return folded(rows, source, cuts_ms)


def _checked(log: FoldedLog) -> FoldedLog:
    log.pace()
    return log

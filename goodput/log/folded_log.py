"""A run's log folded: a plain stretch of iteration lines is one line, the few that tell more stay as they are.

    log = folded(rows)                     # all rows of a run's log
    log = added(log, more)                 # what came in since; StaleError: the log must be read again
    account(RunRecords(run, jobs, log=log.lines(), pace=log.pace(), ...))

The ledger of the folded log is that of the whole log, to the millisecond. Why: docs/goodput.md.
The newest lines are not folded yet (`tail`): what comes a little late finds its place among them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from goodput.log.median import FigureCounts, MedianWindow, OutsideWindowError, joined, narrower, window_around
from goodput.log.training_log import (
    DEGRADED_RATIO,
    ORDERS,
    TICK_MS,
    IterationPace,
    Key,
    LogRow,
    PaceSample,
    TrainingLine,
    forwards,
    order_of,
    pace_from,
    samples_of,
)

# A chapter of a folded log: some thousand successive lines, of which the plain ones stand together.


@dataclass(slots=True)
class Chapter:
    """What is kept of some successive rows.

    `lines` are its lines with each plain stretch as one; `heads` has for each stretch the iteration before it, else
    None. `grows`: the last line may be taken into a stretch once the next one follows it.
    `carry` are the last lines, from the last but one that tells iterations on, of which the last has no sample yet.
    `end` is the place of its last row in the order, `end_ms` the last time told, `oldest_us` the earliest time stored.
    `slowest_ms` = of the folded lines, the slowest iteration. `figures` are those of `pace.Sample.note`.
    """

    lines: list[TrainingLine] = field(default_factory=list)
    heads: list[int | None] = field(default_factory=list)
    grows: bool = False
    carry: list[TrainingLine] = field(default_factory=list)
    previous: TrainingLine | None = None
    count: int = 0
    end: Key | None = None
    end_ms: int | None = None
    oldest_us: int | None = None
    slowest_ms: float = 0.0
    figures: tuple[FigureCounts, FigureCounts, FigureCounts] = field(
        default_factory=lambda: (FigureCounts(), FigureCounts(), FigureCounts())
    )

    def successor(self) -> "Chapter":
        """An empty chapter after this one."""
        return Chapter(carry=self.carry, previous=self.previous, end=self.end, end_ms=self.end_ms)

    def close(self, rows: Sequence[LogRow], end: Key) -> None:
        """Count the rows whose lines were folded and noted."""
        self.count += len(rows)
        self.end = end
        times = [row.line.time_ms for row in rows if row.line.time_ms is not None]
        self.end_ms = times[-1] if times else self.end_ms
        oldest = [row.stored_us for row in rows]
        self.oldest_us = min(oldest if self.oldest_us is None else [self.oldest_us, *oldest])

    def hides(self, iteration: int) -> bool:
        """Whether an iteration lies within a stretch, so that nobody knows any more when it ended."""
        return any(
            head is not None and line.iteration is not None and head < iteration < line.iteration
            for line, head in zip(self.lines, self.heads, strict=True)
        )

    def crosses(self, moments_ms: Sequence[int]) -> bool:
        """Whether a stretch goes over one of some moments, sorted, or is the last or first one beside it."""
        return bool(moments_ms) and any(
            head is not None and _within(moments_ms, self.lines[place - 1], self.lines[place + 1])
            for place, head in enumerate(self.heads)
        )

    def note(self, lines: Sequence[TrainingLine], windows: tuple[MedianWindow, MedianWindow]) -> None:
        """Take the samples of lines that were folded; that of the last iteration waits for what comes after it."""
        known = [*self.carry, *lines]
        places = [place for place, line in enumerate(known) if line.kind == "iteration"]
        if len(places) > 1:
            for sample in self._samples(known[: places[-1]]):
                sample.note(self.figures, windows)
            known = known[places[-2] :]
        self.carry = known

    def open_samples(self, lines: Sequence[TrainingLine]) -> list[PaceSample]:
        """The samples of what is not noted yet: the last iteration, and lines that come after."""
        return self._samples([*self.carry, *lines])

    def _samples(self, known: Sequence[TrainingLine]) -> list[PaceSample]:
        """The samples of lines that begin with what is carried, less the one that was taken before."""
        carried = [line for line in self.carry if line.kind == "iteration"]
        taken = len(carried) > 1 and carried[0].span_ms is not None
        return samples_of(known)[1 if taken else 0 :]

    def fold(self, line: TrainingLine, limit_ms: float, requested: Sequence[int], cuts_ms: Sequence[int]) -> None:
        """Take a line in; the one before it joins the stretch before that, where all three tell nothing else.

        The first and the last line of a start of the program, and those beside others, so stay as they are.

        Args:
            limit_ms: an iteration that took longer is not plain.
            requested: iterations of which the ledger asks when they ended, sorted.
            cuts_ms: moments at which one job's lines may end and another's begin, sorted.
        """
        previous, self.previous = self.previous, line
        plain = previous is not None and _follows(previous, line, limit_ms)
        if plain and self.grows:
            before = self.lines[-2]
            if not (_is_requested(before, self.lines[-1], requested) or _within(cuts_ms, before, line)):
                self._join(limit_ms)
        self.grows = plain and bool(self.lines)
        self.lines.append(line)
        self.heads.append(None)

    def _join(self, limit_ms: float) -> None:
        """Make the last line part of the stretch before it, or one by itself."""
        last, before = self.lines[-1], self.lines[-2]
        if self.heads[-2] is not None:
            longer = _stretch(before, last)
            if _pace_ms(longer) <= limit_ms:
                self.slowest_ms = max(self.slowest_ms, _pace_ms(before), _pace_ms(last), _pace_ms(longer))
                self.lines[-2:] = [longer]
                self.heads.pop()
                return
        self.heads[-1] = before.iteration


def _follows(previous: TrainingLine, line: TrainingLine, limit_ms: float) -> bool:
    """Whether a line goes on where an iteration line ended, and tells but of work at the usual speed."""
    time_ms, iteration, span_ms = line.time_ms, line.iteration, line.span_ms
    if previous.kind != "iteration" or previous.time_ms is None or previous.iteration is None:
        return False
    if time_ms is None or iteration is None or span_ms is None or span_ms > limit_ms * line.iterations:
        return False
    if time_ms < previous.time_ms or iteration <= previous.iteration:
        return False
    if time_ms - round(span_ms) - previous.time_ms > TICK_MS:
        return False
    return line == TrainingLine("iteration", time_ms, iteration, line.iterations, span_ms)


def _is_requested(before: TrainingLine, line: TrainingLine, requested: Sequence[int]) -> bool:
    """Whether one of the iterations that are asked for is told by a line, or is the last one before it."""
    if not requested or before.iteration is None or line.iteration is None:
        return False
    return bisect_left(requested, before.iteration) < bisect_right(requested, line.iteration)


def _within(moments_ms: Sequence[int], before: TrainingLine, after: TrainingLine) -> bool:
    """Whether one of some moments, sorted, lies in what two lines and those between them cover, or just before it."""
    begin = before.time_ms if before.begin_ms is None else before.begin_ms
    if not moments_ms or begin is None or after.time_ms is None:
        return False
    return bisect_right(moments_ms, begin - TICK_MS) < bisect_right(moments_ms, after.time_ms)


def _stretch(before: TrainingLine, line: TrainingLine) -> TrainingLine:
    """Two lines as one; it begins to the millisecond where the first one did."""
    span_ms = (line.time_ms or 0) - (before.time_ms or 0) + round(before.span_ms or 0)
    return TrainingLine("iteration", line.time_ms, line.iteration, before.iterations + line.iterations, float(span_ms))


def _pace_ms(line: TrainingLine) -> float:
    return 0.0 if line.span_ms is None else line.span_ms / line.iterations


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
    windows: tuple[MedianWindow, MedianWindow] = (MedianWindow(), MedianWindow())
    chapters: list[Chapter] = field(default_factory=lambda: [Chapter()])
    tail: list[LogRow] = field(default_factory=list)
    source: str = ""
    loaded: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The rows in it."""
        return sum(chapter.count for chapter in self.chapters) + len(self.tail)

    def lines(self) -> list[TrainingLine]:
        """What `account` reads in the place of the log."""
        return [*(line for chapter in self.chapters for line in chapter.lines), *(row.line for row in self.tail)]

    def pace(self) -> IterationPace:
        """The pace of all its rows.

        Raises:
            StaleError: the median has left what is kept, or a folded line would be slow now.
        """
        free, saved, prints = (joined(parts) for parts in zip(*(one.figures for one in self.chapters), strict=True))
        for sample in self.chapters[-1].open_samples([row.line for row in self.tail]):
            sample.note((free, saved, prints), self.windows)
        try:
            pace = pace_from(free, saved, prints)
        except OutsideWindowError as error:
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


def with_rows(log: FoldedLog, rows: Iterable[LogRow], cuts_ms: Sequence[int] = ()) -> FoldedLog:
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
    requested = _loaded_in(last.carry, lines) | _kept_in(lines)
    if any(chapter.hides(number) for number in requested for chapter in log.chapters):
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


def _usual_ms(samples: Sequence[PaceSample]) -> float | None:
    """The middle of all: what is folded must only be near it."""
    values = sorted(one.value_ms for one in samples)
    return values[len(values) // 2] if values else None


def _kept_in(lines: Sequence[TrainingLine]) -> set[int]:
    """The iterations that saves in the background keep: the ledger asks when they ended."""
    return {line.iteration or 0 for line in lines if line.background}


def _loaded_in(before: Sequence[TrainingLine], lines: Sequence[TrainingLine]) -> set[int]:
    """The iterations that starts of the program go back to: the ledger asks when they ended, in any part of the log.

    Args:
        before: the lines just before, of which the same was asked when they came.
    """
    requested: set[int] = set()
    last: int | None = None
    for place, line in enumerate([*before, *lines], start=-len(before)):
        if line.kind in ("checkpoint_load", "training_start"):
            last = None
            if line.kind == "checkpoint_load" and line.iteration is not None and place >= 0:
                requested.add(line.iteration)
        elif (line.kind == "iteration" or line.tells_end_of_work) and line.iteration is not None:
            resumed = line.iteration - line.iterations
            if place >= 0 and (last is None or resumed < last):
                requested.add(resumed)
            last = line.iteration
    return requested


def _fold_tail(log: FoldedLog, usual_ms: float | None, cuts_ms: Sequence[int]) -> None:
    """Fold all of the tail but its newest rows."""
    limit = 0.0 if usual_ms is None else _PLAIN_RATIO * usual_ms
    key = ORDERS[log.order]
    chapter = log.chapters[-1]
    lines = [row.line for row in log.tail]
    # A start without a time may be accounted after starts that the log tells later.
    log.loaded = sorted({*log.loaded, *_loaded_in(chapter.carry, lines)})
    requested = sorted({*log.loaded, *_kept_in(lines)})
    done = log.tail[:-TAIL]
    while done:
        if chapter.count >= CHAPTER:
            chapter = chapter.successor()
            log.chapters.append(chapter)
        part, done = done[: CHAPTER - chapter.count], done[CHAPTER - chapter.count :]
        for line in [row.line for row in part]:
            chapter.fold(line, limit, requested, cuts_ms)
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


def with_news(
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
        return _checked(with_rows(log, fresh, cuts_ms))
    except StaleError as stale:
        late = stale.row
    if late is not None:
        part, since_us = cut_before(log, late)
        key, end = ORDERS[part.order], part.chapters[-1].end
        rows = [row for row in reread(since_us) if end is None or key(row) > end]
        if part.count + len(rows) < expected:
            raise PrunedError
        try:
            return _checked(with_rows(part, rows, cuts_ms))
        except StaleError:
            pass
    rows = reread(None)
    if len(rows) < expected:
        raise PrunedError
    return folded(rows, source, cuts_ms)


def _checked(log: FoldedLog) -> FoldedLog:
    log.pace()
    return log

"""A chapter of a folded log: some thousand successive lines, of which the plain ones stand together."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from goodput.log.median import Figures, Window
from goodput.log.pace import Sample, samples_of
from goodput.log.rows import Key, LogRow
from goodput.log.training_log import TICK_MS, LogLine


@dataclass(slots=True)
class Chapter:
    """What is kept of some successive rows.

    `lines` are its lines with each plain stretch as one; `heads` has for each stretch the iteration before it, else
    None. `grows`: the last line may be taken into a stretch once the next one follows it.
    `carry` are the last lines, from the last but one that tells iterations on, of which the last has no sample yet.
    `end` is the place of its last row in the order, `end_ms` the last time told, `oldest_us` the earliest time stored.
    `slowest_ms` = of the folded lines, the slowest iteration. `figures` are those of `pace.Sample.note`.
    """

    lines: list[LogLine] = field(default_factory=list)
    heads: list[int | None] = field(default_factory=list)
    grows: bool = False
    carry: list[LogLine] = field(default_factory=list)
    previous: LogLine | None = None
    count: int = 0
    end: Key | None = None
    end_ms: int | None = None
    oldest_us: int | None = None
    slowest_ms: float = 0.0
    figures: tuple[Figures, Figures, Figures] = field(default_factory=lambda: (Figures(), Figures(), Figures()))

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

    def note(self, lines: Sequence[LogLine], windows: tuple[Window, Window]) -> None:
        """Take the samples of lines that were folded; that of the last iteration waits for what comes after it."""
        known = [*self.carry, *lines]
        places = [place for place, line in enumerate(known) if line.kind == "iteration"]
        if len(places) > 1:
            for sample in self._samples(known[: places[-1]]):
                sample.note(self.figures, windows)
            known = known[places[-2] :]
        self.carry = known

    def open_samples(self, lines: Sequence[LogLine]) -> list[Sample]:
        """The samples of what is not noted yet: the last iteration, and lines that come after."""
        return self._samples([*self.carry, *lines])

    def _samples(self, known: Sequence[LogLine]) -> list[Sample]:
        """The samples of lines that begin with what is carried, less the one that was taken before."""
        carried = [line for line in self.carry if line.kind == "iteration"]
        taken = len(carried) > 1 and carried[0].span_ms is not None
        return samples_of(known)[1 if taken else 0 :]

    def fold(self, line: LogLine, limit_ms: float, asked: Sequence[int], cuts_ms: Sequence[int]) -> None:
        """Take a line in; the one before it joins the stretch before that, where all three tell nothing else.

        The first and the last line of a start of the program, and those beside others, so stay as they are.

        Args:
            limit_ms: an iteration that took longer is not plain.
            asked: iterations of which the ledger asks when they ended, sorted.
            cuts_ms: moments at which one job's lines may end and another's begin, sorted.
        """
        previous, self.previous = self.previous, line
        plain = previous is not None and _follows(previous, line, limit_ms)
        if plain and self.grows:
            before = self.lines[-2]
            if not (_is_asked(before, self.lines[-1], asked) or _within(cuts_ms, before, line)):
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


def _follows(previous: LogLine, line: LogLine, limit_ms: float) -> bool:
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
    return line == LogLine("iteration", time_ms, iteration, line.iterations, span_ms)


def _is_asked(before: LogLine, line: LogLine, asked: Sequence[int]) -> bool:
    """Whether one of the iterations that are asked for is told by a line, or is the last one before it."""
    if not asked or before.iteration is None or line.iteration is None:
        return False
    return bisect_left(asked, before.iteration) < bisect_right(asked, line.iteration)


def _within(moments_ms: Sequence[int], before: LogLine, after: LogLine) -> bool:
    """Whether one of some moments, sorted, lies in what two lines and those between them cover, or just before it."""
    begin = before.time_ms if before.begin_ms is None else before.begin_ms
    if not moments_ms or begin is None or after.time_ms is None:
        return False
    return bisect_right(moments_ms, begin - TICK_MS) < bisect_right(moments_ms, after.time_ms)


def _stretch(before: LogLine, line: LogLine) -> LogLine:
    """Two lines as one; it begins to the millisecond where the first one did."""
    span_ms = (line.time_ms or 0) - (before.time_ms or 0) + round(before.span_ms or 0)
    return LogLine("iteration", line.time_ms, line.iteration, before.iterations + line.iterations, float(span_ms))


def _pace_ms(line: LogLine) -> float:
    return 0.0 if line.span_ms is None else line.span_ms / line.iterations

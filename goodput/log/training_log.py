"""A training log as the ledger reads it: typed lines in order, cut into sessions (one start of the program each).

An iteration line tells how many iterations it covers and how long each took; it may bear no time.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

from goodput.formulas.shape import Shape, parse_shape, shape_from_figures
from goodput.log.median import FigureCounts, MedianWindow, joined, median, median_of
from goodput.timeline import DAY_MS, to_ms
from store.records.event import Attribute, Event

# A longer span on one line is a broken line, not a fact: a year.
_MAX_MS = 366 * DAY_MS

# The kinds of training events that the ledger reads.
KINDS = (
    "training_start",
    "iteration",
    "checkpoint_load",
    "checkpoint_save_start",
    "checkpoint_save",
    "checkpoint_torn",
    "evaluation",
    "data_wait",
    "straggler",
    "training_phase",
    "training_error",
    "training_end",
)
# Told beside the work: they begin no session and end none.
_BESIDE = frozenset({"straggler", "training_phase"})
# What says more than figures, by its kind.
_WORDS = {"training_phase": ("phase",), "training_error": ("error",), "straggler": ("rank", "node")}
# Two lines that print whole seconds may lie this far apart without anything between them.
TICK_MS = 1_000


@dataclass(frozen=True, slots=True)
class TrainingLine:
    """One event of a training log. `span_ms` = what an iteration line covers; `duration_ms` = a stall's length.

    `background` = the end of a save that went on while the program worked: its `duration_ms` is what it had stalled.
    `data_ms` = how much of the span was spent waiting for data. `words` = a phase of the startup, the model's shape
    where that phase told it, an error's name, a straggler's rank and node.
    """

    kind: str
    time_ms: int | None
    iteration: int | None = None
    iterations: int = 1
    span_ms: float | None = None
    duration_ms: int | None = None
    background: bool = False
    data_ms: float | None = None
    words: str = ""

    @property
    def tells_end_of_work(self) -> bool:
        """Whether an end tells of iterations that no line before it did."""
        return self.kind == "training_end" and self.iteration is not None and self.span_ms is not None

    @property
    def begin_ms(self) -> int | None:
        """When what the line covers began; None where the line bears no time or no span."""
        if self.time_ms is None or self.span_ms is None:
            return None
        return self.time_ms - round(self.span_ms)


def line_of(kind: str, time_ms: int | None, attributes: Mapping[str, Attribute]) -> TrainingLine:
    """The line that a training event stands for; impossible figures are unknown."""
    count = _number(attributes.get("iterations"))
    iterations = int(count) if count and count >= 1 else 1
    elapsed = _number(attributes.get("elapsed_ms"))
    apart = attributes.get("async") is True
    background = apart and kind == "checkpoint_save"  # of a save that begins nothing is kept yet
    duration = _number(attributes.get("blocking_ms" if apart else "duration_ms"))
    iteration = _number(attributes.get("iteration"))
    span = None if elapsed is None else elapsed * iterations
    data = _number(attributes.get("data_ms"))
    return TrainingLine(
        kind=kind,
        time_ms=time_ms,
        iteration=None if iteration is None else int(iteration),
        iterations=iterations,
        span_ms=None if span is None or span > _MAX_MS else span,
        duration_ms=None if duration is None else round(duration),
        background=background,
        data_ms=None if data is None else data * iterations,
        words=_words(kind, attributes),
    )


def _words(kind: str, attributes: Mapping[str, Attribute]) -> str:
    """What a line says beside its figures."""
    if kind == "training_phase" and (shape := shape_from_figures(attributes)) is not None:
        return shape.text
    names = _WORDS.get(kind)
    if names is None:
        return ""
    return " ".join(
        f"{name} {reported}" if len(names) > 1 else str(reported)
        for name in names
        if (reported := attributes.get(name)) is not None
    )


def lines_of(events: Iterable[Event]) -> list[TrainingLine]:
    """The lines of training events, in the order given; kinds that the ledger does not read are left out."""
    return [line_of(e.kind, None if e.time is None else to_ms(e.time), e.attributes) for e in events if e.kind in KINDS]


def _number(value: Attribute) -> float | None:
    """A finite figure of at least 0 and of sane size, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= _MAX_MS else None


@dataclass(frozen=True, slots=True)
class Session:
    """The lines of one start of the training program."""

    lines: tuple[TrainingLine, ...]

    @property
    def first_ms(self) -> int | None:
        """The first time that a line of the session bears."""
        return next((line.time_ms for line in self.lines if line.time_ms is not None), None)

    @property
    def begin_ms(self) -> int | None:
        """When the session began as far as its lines tell: its first timed line, or what that line covers."""
        for line in self.lines:
            if line.time_ms is not None:
                return line.time_ms if line.begin_ms is None else line.begin_ms
        return None


def sessions(lines: Sequence[TrainingLine]) -> list[Session]:
    """The log cut where the program started anew: at its start line, at a load, or where iterations go back."""
    found: list[Session] = []
    current: list[TrainingLine] = []
    last: TrainingLine | None = None
    previous: TrainingLine | None = None
    for line in work_lines(lines):
        if line == previous:  # printed twice (two ranks, a log read twice)
            continue
        if last is not None and _restarts(line, last):
            found.append(Session(tuple(current)))
            current, last = [], None
        elif last is None and line.kind == "training_start" and line.time_ms is not None:
            before, current = _before_start(current)
            if before:
                found.append(Session(tuple(before)))
        current.append(line)
        previous = line
        if line.kind == "iteration":
            last = line
    if current:
        found.append(Session(tuple(current)))
    return found


def work_lines(lines: Sequence[TrainingLine]) -> list[TrainingLine]:
    """The lines of the work alone, with what later lines tell of earlier ones put there.

    A wait for data that names the iteration just told lay within that line; what a save in the background stalled is
    known when it ends, and belongs to its beginning.
    """
    found: list[TrainingLine] = []
    last: int | None = None
    begun: dict[int | None, int] = {}
    for line in lines:
        if line.kind in _BESIDE:
            continue
        if line.kind == "data_wait" and last is not None and line.iteration is not None:
            reported = found[last]
            if line.iteration == reported.iteration:
                found[last] = replace(reported, data_ms=line.duration_ms)
                continue
        if line.kind == "checkpoint_save_start":
            begun[line.iteration] = len(found)
        elif line.kind == "checkpoint_save" and line.background and line.duration_ms is not None:
            place = begun.pop(line.iteration, None)
            if place is not None:
                found[place] = replace(found[place], duration_ms=line.duration_ms)
        elif line.kind == "iteration":
            last = len(found)
        found.append(line)
    return found


def with_reported_ends(lines: Iterable[TrainingLine]) -> list[TrainingLine]:
    """The lines, the work that an end tells of as an iteration line before it: a log of progress bars prints no other.

    The log's pace is taken without it: it is no line that the program printed.
    """
    found: list[TrainingLine] = []
    for line in lines:
        if line.tells_end_of_work:
            found.append(replace(line, kind="iteration"))
        found.append(line)
    return found


def shape_in(lines: Sequence[TrainingLine]) -> Shape | None:
    """The model's shape as the newest arguments in the log tell it; None where none do."""
    reported = (
        line.words for line in reversed(lines) if line.kind == "training_phase" and line.words.startswith("batch=")
    )
    return next((parse_shape(words) for words in reported), None)


def known_at(lines: Sequence[TrainingLine], until_ms: int) -> list[TrainingLine]:
    """The lines before the first one that is dated later; one without a time was known with those before it."""
    later = (place for place, line in enumerate(lines) if line.time_ms is not None and line.time_ms > until_ms)
    return list(lines[: next(later, None)])


def _before_start(lines: list[TrainingLine]) -> tuple[list[TrainingLine], list[TrainingLine]]:
    """Lines without an iteration cut for a dated start line: what an earlier start left, what belongs to this one.

    The load is printed before the start line, by some programs with its time.
    """
    dated = [place for place, line in enumerate(lines) if line.time_ms is not None and line.kind != "checkpoint_load"]
    cut = dated[-1] + 1 if dated else 0
    return lines[:cut], lines[cut:]


def _restarts(line: TrainingLine, last: TrainingLine) -> bool:
    """Whether a line begins a new session, after an iteration line `last`."""
    if line.time_ms is not None and last.time_ms is not None and line.time_ms < last.time_ms:
        return False  # out of order, or the clock was set back: no restart
    if line.kind in ("training_start", "checkpoint_load"):
        return True
    if line.kind != "iteration" or line.iteration is None or last.iteration is None:
        return False
    return line.iteration <= last.iteration and (line.time_ms is None or line.time_ms != last.time_ms)


# A log's pace from its iteration lines, one sample each, so that it can be kept up as lines come in.

# Iteration lines that follow no save tell the pace, if they are more than one in so many.
FEW = 4
# An iteration slower than this times the run's median is degraded; DESIGN fixes no figure, this is our choice.
DEGRADED_RATIO = 1.2


@dataclass(frozen=True, slots=True)
class IterationPace:
    """A log's normal speed: the median time of an iteration, and of what an iteration line covers; None without any."""

    iteration_ms: float | None
    print_ms: float | None


@dataclass(frozen=True, slots=True)
class PaceSample:
    """What an iteration line tells of the pace: an iteration's time, and what the line covers.

    `after_save` = the stall of a save was timed with it, and is taken out of `value_ms`.
    """

    value_ms: float
    print_ms: float
    after_save: bool

    def note(
        self, figures: tuple[FigureCounts, FigureCounts, FigureCounts], windows: tuple[MedianWindow, MedianWindow]
    ) -> None:
        """Add it to the figures of free lines, of lines after a save, and of what lines cover."""
        figures[1 if self.after_save else 0].add(self.value_ms, windows[0])
        figures[2].add(self.print_ms, windows[1])


def samples_of(lines: Sequence[TrainingLine]) -> list[PaceSample]:
    """A sample for each iteration line that tells what it covers; waits for data are no part of it."""
    found = []
    before: TrainingLine | None = None
    stall = 0
    for line in work_lines(lines):
        if line.kind == "checkpoint_save" and not line.background:
            stall += line.duration_ms or 0
        elif line.kind == "iteration":
            if line.span_ms is not None:
                net = max(0.0, line.span_ms - (line.data_ms or 0.0))
                timed = stall > TICK_MS and stall < net and _leaves_no_room(before, line, stall)
                value = (net - stall if timed else net) / line.iterations
                found.append(PaceSample(value, line.span_ms, timed))
            before, stall = line, 0
    return found


def _leaves_no_room(before: TrainingLine | None, line: TrainingLine, stall_ms: int) -> bool:
    """Whether a stall between two iteration lines is longer than the time that lies between what they cover."""
    if before is None or before.time_ms is None or line.begin_ms is None:
        return False
    return line.begin_ms - before.time_ms + TICK_MS < stall_ms


def pace_of(lines: Sequence[TrainingLine]) -> IterationPace:
    """The pace of a log, each iteration line counted once; lines after a save count only where nearly all are such."""
    samples = samples_of(lines)
    free = [one.value_ms for one in samples if not one.after_save]
    after_save = [one.value_ms for one in samples if one.after_save]
    few = len(free) * FEW < len(after_save)
    return IterationPace(median(free + after_save if few else free), median([one.print_ms for one in samples]))


def pace_from(free: FigureCounts, after_save: FigureCounts, prints: FigureCounts) -> IterationPace:
    """The same of figures that were kept.

    Raises:
        OutsideWindowError: a median is not among what was kept one by one.
    """
    few = free.count * FEW < after_save.count
    return IterationPace(median_of(joined([free, after_save]) if few else free), median_of(prints))


# Lines of a run's log as they are stored, and the order in which they were written.
#
# Many lines bear no time: the store then holds the moment of receipt, or one that the ingest assumed.
# The file's own line numbers give the order, unless the clock says that they do not (a log rotated or read anew).

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LogRow:
    """A line with what tells its place; `stored_us` is the time that the store has for it."""

    line: TrainingLine
    received_ms: int
    file: str
    number: int
    stored_us: int
    id: str


_LAST = 2**62
_BEFORE_WORK = frozenset({"training_start", "checkpoint_load"})


def _within(row: LogRow) -> Key:
    """Where neither number nor receipt tells: by time, by the iteration told of, the work before what comes of it."""
    line = row.line
    iteration = line.iteration
    if iteration is None:
        iteration = -1 if line.kind in _BEFORE_WORK else _LAST
    return row.stored_us, iteration, line.kind != "iteration", line.kind, row.id


# The orders that the records allow. In the last one the clock never runs backwards.
ORDERS: tuple[Callable[[LogRow], Key], ...] = (
    lambda x: (x.file, x.number, *_within(x)),
    lambda x: (x.received_ms, x.file, x.number, *_within(x)),
    lambda x: (x.received_ms if x.line.time_ms is None else x.line.time_ms, x.file, x.number, *_within(x)),
)


def row_of(
    reported: tuple[str, int, Mapping[str, Any], str | None, int | None, str],
    received_us: int,
) -> LogRow:
    """The row of a stored event: its kind, time in microseconds, attributes, file, line number and id."""
    kind, stored_us, attributes, file, number, name = reported
    undated = stored_us == received_us or attributes.get("time_assumed")
    line = line_of(kind, None if undated else stored_us // 1000, attributes)
    return LogRow(line, received_us // 1000, file or "", number or 0, stored_us, name)


def order_of(rows: Sequence[LogRow]) -> tuple[int, list[LogRow]]:
    """The first order in which the clock never runs backwards: its place in ORDERS, and the rows in it."""
    for number, key in enumerate(ORDERS[:-1]):
        ordered = sorted(rows, key=key)
        if forwards(ordered):
            return number, ordered
    return len(ORDERS) - 1, sorted(rows, key=ORDERS[-1])


def forwards(rows: Sequence[LogRow], since_ms: int | None = None) -> bool:
    """Whether the clock never runs backwards from one timed line to the next, the first of them after `since_ms`."""
    times = [] if since_ms is None else [since_ms]
    times += [row.line.time_ms for row in rows if row.line.time_ms is not None]
    return all(earlier <= later for earlier, later in pairwise(times))

"""A training log as the ledger reads it: typed lines in order, cut into sessions (one start of the program each).

An iteration line tells how many iterations it covers and how long each took; it may bear no time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from goodput.formulas.shape import Shape, parse_shape, shape_told
from goodput.timeline import DAY_MS, to_ms
from store.event import Attribute, Event

# A longer span on one line is a broken line, not a fact: a year.
_MAX_MS = 366 * DAY_MS

# The kinds of training events that the ledger reads.
KINDS = (
    "training_start",
    "iteration",
    "checkpoint_load",
    "checkpoint_save_start",
    "checkpoint_save",
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
class LogLine:
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


def line_of(kind: str, time_ms: int | None, attributes: Mapping[str, Attribute]) -> LogLine:
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
    return LogLine(
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
    if kind == "training_phase" and (shape := shape_told(attributes)) is not None:
        return shape.text
    names = _WORDS.get(kind)
    if names is None:
        return ""
    return " ".join(
        f"{name} {told}" if len(names) > 1 else str(told)
        for name in names
        if (told := attributes.get(name)) is not None
    )


def lines_of(events: Iterable[Event]) -> list[LogLine]:
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

    lines: tuple[LogLine, ...]

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


def sessions(lines: Sequence[LogLine]) -> list[Session]:
    """The log cut where the program started anew: at its start line, at a load, or where iterations go back."""
    found: list[Session] = []
    current: list[LogLine] = []
    last: LogLine | None = None
    previous: LogLine | None = None
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


def work_lines(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines of the work alone, with what later lines tell of earlier ones put there.

    A wait for data that names the iteration just told lay within that line; what a save in the background stalled is
    known when it ends, and belongs to its beginning.
    """
    found: list[LogLine] = []
    last: int | None = None
    begun: dict[int | None, int] = {}
    for line in lines:
        if line.kind in _BESIDE:
            continue
        if line.kind == "data_wait" and last is not None and line.iteration is not None:
            told = found[last]
            if line.iteration == told.iteration:
                found[last] = replace(told, data_ms=line.duration_ms)
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


def with_told_ends(lines: Iterable[LogLine]) -> list[LogLine]:
    """The lines, the work that an end tells of as an iteration line before it: a log of progress bars prints no other.

    The log's pace is taken without it: it is no line that the program printed.
    """
    found: list[LogLine] = []
    for line in lines:
        if line.tells_end_of_work:
            found.append(replace(line, kind="iteration"))
        found.append(line)
    return found


def shape_in(lines: Sequence[LogLine]) -> Shape | None:
    """The model's shape as the newest arguments in the log tell it; None where none do."""
    told = (line.words for line in reversed(lines) if line.kind == "training_phase" and line.words.startswith("batch="))
    return next((parse_shape(words) for words in told), None)


def known_at(lines: Sequence[LogLine], until_ms: int) -> list[LogLine]:
    """The lines before the first one that is dated later; one without a time was known with those before it."""
    later = (place for place, line in enumerate(lines) if line.time_ms is not None and line.time_ms > until_ms)
    return list(lines[: next(later, None)])


def _before_start(lines: list[LogLine]) -> tuple[list[LogLine], list[LogLine]]:
    """Lines without an iteration cut for a dated start line: what an earlier start left, what belongs to this one.

    The load is printed before the start line, by some programs with its time.
    """
    dated = [place for place, line in enumerate(lines) if line.time_ms is not None and line.kind != "checkpoint_load"]
    cut = dated[-1] + 1 if dated else 0
    return lines[:cut], lines[cut:]


def _restarts(line: LogLine, last: LogLine) -> bool:
    """Whether a line begins a new session, after an iteration line `last`."""
    if line.time_ms is not None and last.time_ms is not None and line.time_ms < last.time_ms:
        return False  # out of order, or the clock was set back: no restart
    if line.kind in ("training_start", "checkpoint_load"):
        return True
    if line.kind != "iteration" or line.iteration is None or last.iteration is None:
        return False
    return line.iteration <= last.iteration and (line.time_ms is None or line.time_ms != last.time_ms)

"""Where a training program is: its last iteration, so that the next line knows what it covers and how long it took."""

from collections.abc import Mapping
from datetime import datetime

from store.event import Attribute

# Both times are whole seconds.
_TICK_MS = 1_000
CLOCK = ("hours", "minutes", "second")  # what a bar's clock is told by
NOTHING: Mapping[str, Attribute] = {}


class Progress:
    """Iterations of one attempt. Holds the last line's number and time, the interval between lines, the last bar."""

    def __init__(self) -> None:
        self.interval: int | None = None
        self.total: int | None = None
        self.planned: int | None = None  # the total as the trainer itself said it
        self.epochs: int | None = None
        self.bar: int | None = None  # the step that the last progress bar showed
        self.bar_s: float | None = None  # and for how long it had run
        self._last: int | None = None
        self._from: int | None = None  # iteration that the attempt started from
        self._clock: tuple[str, float] | None = None
        self._began: datetime | None = None  # when the attempt began to iterate, as it said

    def plans(self, numbers: Mapping[str, Attribute]) -> None:
        """How many steps and epochs there will be, and how many steps from line to line."""
        total, epochs, interval = (numbers.get(name) for name in ("total", "epochs", "interval"))
        if isinstance(total, int) and total > 0:
            self.total = self.planned = total
        if isinstance(epochs, int) and epochs > 0:
            self.epochs = epochs
        if isinstance(interval, int) and interval > 0:
            self.interval = interval

    def shows(self, numbers: Mapping[str, Attribute]) -> None:
        """A progress bar: where the next line without a step is, and since when. One of another total is not ours."""
        step, total = numbers.get("iteration"), numbers.get("total")
        if not isinstance(step, int) or not isinstance(total, int) or self.planned not in (None, total):
            return
        self.bar, self.bar_s = step, _clock_s(numbers)
        if step == 0 and self._clock is None and self._from is None:  # the steps begin
            self._last, self._clock = 0, ("bar", self.bar_s)
        self.total = total or self.total

    def loaded(self, iteration: int) -> None:
        """The attempt goes on from a checkpoint, or from 0."""
        self._from, self._clock = iteration, None

    def restart(self, time: datetime | None = None) -> None:
        """An attempt begins: the time since the last line was no work."""
        self._clock = self.bar = self.bar_s = None
        self._began = time

    def forget(self) -> None:
        """Another trainer than before tells the iterations: its lines are counted anew."""
        self._last = self._clock = self.interval = None

    def repeats(self, iteration: int) -> bool:
        """Whether the line before told the same iteration."""
        return self._from is None and iteration == self._last

    def unprinted(self) -> Mapping[str, Attribute]:
        """The iterations that the bar shows beyond the last line, and how long each took; nothing where none are."""
        if self.bar is None or self.bar <= (self._last or 0):
            return NOTHING
        iteration = self.bar
        covered, elapsed_ms = self.advance(iteration, None)
        if elapsed_ms is None:
            return NOTHING
        return {"iteration": iteration, "iterations": covered, "elapsed_ms": elapsed_ms}

    def step_of(self, epoch: Attribute) -> int | None:
        """The step of a line that bears none: the bar's, else what the share of the epochs makes."""
        if self.bar is not None:
            return self.bar
        if self.total is None or not self.epochs or not isinstance(epoch, float):
            return None
        return round(epoch * self.total / self.epochs)

    def advance(
        self, iteration: int, time: datetime | None, numbers: Mapping[str, Attribute] = NOTHING
    ) -> tuple[int, float | None]:
        """How many iterations a line covers, and the milliseconds of each since the line before where times tell.

        `numbers` = what the line itself tells: how long each took, or how long its bar had run.
        """
        if "second" in numbers:
            self.bar_s = _clock_s(numbers)
        covered = self._covered(iteration, self._passed_ms(time), numbers.get("elapsed_ms"))
        self._began = None
        clock, self._clock = self._clock, self._now(time)
        goes_on = self._last is not None and iteration > self._last and self._from is None
        self._last, self._from = iteration, None
        if clock is None or self._clock is None or clock[0] != self._clock[0] or not goes_on:
            return covered, None
        passed_s = self._clock[1] - clock[1]
        return covered, round(passed_s * 1000 / covered, 3) if passed_s > 0 else None

    def _now(self, time: datetime | None) -> tuple[str, float] | None:
        if time is not None:
            return "time", time.timestamp()
        return None if self.bar_s is None else ("bar", self.bar_s)

    def _passed_ms(self, time: datetime | None) -> float | None:
        """Milliseconds since the attempt began to iterate, for its first line."""
        if time is None or self._began is None:
            return None
        return (time - self._began).total_seconds() * 1000

    def _covered(self, iteration: int, passed_ms: float | None = None, each_ms: Attribute = None) -> int:
        if self._from is not None and iteration > self._from:
            return iteration - self._from
        if self._last is not None and iteration > self._last and self._from is None:
            self.interval = self.interval or iteration - self._last
            return iteration - self._last
        # Nothing was loaded, and since the start there was time for them all.
        if passed_ms is not None and isinstance(each_ms, float) and 0 < iteration * each_ms <= passed_ms + _TICK_MS:
            return iteration
        # The log's beginning is not there: the interval between lines, else this one alone.
        return min(self.interval or 1, max(iteration, 1))


def _clock_s(numbers: Mapping[str, Attribute]) -> float:
    """For how long a bar has run."""
    hours, minutes, second = (_float(numbers.get(name)) for name in CLOCK)
    return hours * 3600 + minutes * 60 + second


def _float(value: Attribute) -> float:
    return value if isinstance(value, float) else 0.0

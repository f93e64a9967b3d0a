"""Progress of a training program: its last iteration, its model's shape, and ranks that are slower than the others."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from store.records.event import Attribute

# The model's shape, out of the arguments that a program prints when it starts, one a line.

# What makes a model's arithmetic: sequences a step, layers, tokens a sequence, hidden size.
SHAPE = ("batch", "layers", "seq", "hidden")


class ModelShape:
    """The figures of the arguments that are being printed."""

    def __init__(self) -> None:
        self._reported: dict[str, Attribute] = {}

    def add(self, numbers: Mapping[str, Attribute]) -> None:
        """An argument's line."""
        self._reported.update(numbers)

    def take(self) -> dict[str, Attribute] | None:
        """At the end of the arguments: all four figures, else None; the next ones are another start's."""
        reported, self._reported = self._reported, {}
        return {name: reported[name] for name in SHAPE} if all(name in reported for name in SHAPE) else None


# Both times are whole seconds.
_TICK_MS = 1_000
CLOCK = ("hours", "minutes", "second")  # the units of a bar's clock
NOTHING: Mapping[str, Attribute] = {}


class TrainingProgress:
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

    def unprinted(self, since_s: float = 0.0) -> Mapping[str, Attribute]:
        """The iterations that the bar shows beyond the last line, and how long each took; nothing where none are.

        `since_s`: nothing either where fewer seconds have passed by the bar's clock.
        """
        if self.bar is None or self.bar <= (self._last or 0):
            return NOTHING
        if since_s and (self._clock is None or self._clock[0] != "bar" or self._now_s() - self._clock[1] < since_s):
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

    def _now_s(self) -> float:
        return self.bar_s or 0.0

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


# Ranks that hold the others up, as detectors inside the training program name them.
#
#      Rank=76 Node=h100-001-253-012 Score=0.64
#     STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: [76]
#     STRAGGLER DETECTION WARNING: ... Affected ranks: {StragglerId(rank=76, node='h100-001-253-012')}
#     [2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 4468.20ms/0 | MnPwr/Rnk: 601796W/8 | ...
#     -> {"rank": 76, "node": "h100-001-253-012"}
#
# NVRx's detector warns; Megatron-LM's own prints its fastest and slowest rank always: the slowest counts if it takes a
# fifth longer. Sources: attribution/straggler/reporting.py of NVIDIA/nvidia-resiliency-ext, ptl_resiliency/
# straggler_det_callback.py, training/nvrx_straggler.py of Megatron-Bridge, core/utils.py of NVIDIA/Megatron-LM.

STRAGGLER_SIGNS = ("STRAGGLER DETECTION WARNING", "MxRtt/Rnk", " Score=")
# Of one line no more ranks than these; where all are slow, none is a straggler.
MAX_RANKS = 32
# A rank as much slower than the fastest is one; the ledger calls iterations slow by the same ratio.
_SLOW = 1.2

_SCORE = re.compile(r"\bRank=(?P<rank>\d{1,7}) Node=(?P<node>[\w.-]{1,200}) Score=\d", re.ASCII)
_WARNING = re.compile(r"STRAGGLER DETECTION WARNING: .{0,200}Affected ranks: [\[{](?P<ranks>.{1,20000})", re.ASCII)
_NAMED = re.compile(r"rank=(?P<rank>\d{1,7}), node='(?P<node>[^']{1,200})'", re.ASCII)
_NUMBER = re.compile(r"(?<![\w=.-])\d{1,7}(?![\w.-])", re.ASCII)
_TRIPS = re.compile(
    r"MnRtt/Rnk: (?P<least>\d{1,12}(?:\.\d{1,6})?)ms/\d{1,7} \| "
    r"MxRtt/Rnk: (?P<most>\d{1,12}(?:\.\d{1,6})?)ms/(?P<rank>\d{1,7})",
    re.ASCII,
)


class Stragglers:
    """Reads them. Remembers on which node a rank is, as a report's lines tell before the warning."""

    def __init__(self) -> None:
        self._nodes: dict[int, str] = {}

    def read(self, text: str) -> Iterator[dict[str, Attribute]]:
        """The stragglers that a line names: `rank`, and `node` where known."""
        if not any(sign in text for sign in STRAGGLER_SIGNS):
            return
        if match := _SCORE.search(text):
            if len(self._nodes) < MAX_RANKS or int(match["rank"]) in self._nodes:
                self._nodes[int(match["rank"])] = match["node"]
        elif match := _WARNING.search(text):
            yield from list(self._warned(match["ranks"]))[:MAX_RANKS]
            self._nodes.clear()
        elif (match := _TRIPS.search(text)) and float(match["most"]) > _SLOW * float(match["least"]):
            yield self._reported(int(match["rank"]))

    def _warned(self, ranks: str) -> Iterator[dict[str, Attribute]]:
        named = list(_NAMED.finditer(ranks))
        for match in named:
            self._nodes[int(match["rank"])] = match["node"]
            yield self._reported(int(match["rank"]))
        if not named:
            for number in _NUMBER.findall(ranks):
                yield self._reported(int(number))

    def _reported(self, rank: int) -> dict[str, Attribute]:
        node = self._nodes.get(rank)
        return {"rank": rank} if node is None else {"rank": rank, "node": node}

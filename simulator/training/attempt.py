"""A training run's starts, step by step: iterations, saves, evaluations, until a fault or the end.

Each step is a whole number of seconds, so the program's log, which prints seconds, loses nothing. What makes runs
differ (ways to save, waits for data, sizes, overlaps, missing records) is drawn from a stream of its own: a cluster
whose training is `steady` draws nothing of it. These figures are ours; none is a published rate.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from simulator.faults.fault import NodeFailure
from simulator.site import Parameters

SaveMode: TypeAlias = Literal["sync", "async", "memory"]
SAVE_MODES: tuple[SaveMode, ...] = ("sync", "async", "memory")
# What a save to memory after every line stalls; the program times it with the line that follows.
MEMORY_SAVE_MS = 4_000


@dataclass(slots=True)
class Variety:
    """Draws for one cluster's runs; `rng` is advanced by each."""

    rng: np.random.Generator

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def _seconds(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1)) * 1000

    def save_mode(self) -> SaveMode:
        """How an attempt saves."""
        return SAVE_MODES[int(self.rng.integers(0, len(SAVE_MODES)))]

    def blocking_ms(self) -> int:
        """What a save in the background stalls."""
        return self._seconds(2, 6)

    def write_ms(self) -> int:
        """How long it is written afterwards."""
        return self._seconds(60, 600)

    def data_ms(self, span_ms: int) -> int:
        """What a print interval waits for data, on top of its usual time: mostly nothing."""
        return round(span_ms * self.rng.uniform(0.02, 0.6) / 1000) * 1000 if self._chance(0.06) else 0

    def size(self, nodes: int) -> int:
        """On how many nodes an elastic run starts."""
        return max(2, round(nodes * float(self.rng.choice((1.0, 1.0, 0.75, 0.5)))))

    def loads_older(self) -> bool:
        """Whether the newest checkpoint turns out broken."""
        return self._chance(0.25)

    def loses_memory(self) -> bool:
        """Whether what was saved to memory is gone with the node."""
        return self._chance(0.6)

    def early_ms(self) -> int:
        """By how much the next attempt is started before this one has ended."""
        return self._seconds(20, 200) if self._chance(0.3) else 0

    def hidden(self) -> Literal["log", "job", ""]:
        """Which record of an attempt is missing."""
        draw = self.rng.random()
        return "log" if draw < 0.1 else "job" if draw < 0.2 else ""


# Steps that end a save's stall; whether the save was finished is for `done_ms` to say.
SAVES = frozenset({"save", "save_async", "save_memory"})


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """`iteration`, `save`, `save_async`, `save_memory`, `save_unfinished` or `evaluation`.

    `iteration` = the last one done when it ends. `data_ms` = what of it was spent waiting for data; `folded_ms` = the
    stall right before it, that its line counts as its own; `done_ms` = when a save in the background was finished, None
    if it never was.
    """

    kind: str
    begin_ms: int
    length_ms: int
    iteration: int
    data_ms: int = 0
    folded_ms: int = 0
    done_ms: int | None = None

    @property
    def end_ms(self) -> int:
        """When it is over."""
        return self.begin_ms + self.length_ms

    @property
    def keeps(self) -> bool:
        """Whether it is a save that was finished."""
        return self.kind in SAVES and (self.kind != "save_async" or self.done_ms is not None)


@dataclass(slots=True)
class SimulatedAttempt:
    """One job of the scheduler. `loaded` = the iteration whose checkpoint it starts from, None for none.

    `checkpoint` = whose save that was, as (place of the attempt, place of its step). `hidden` = its `log` or its `job`
    is in no record.
    """

    job_id: int
    run: str
    submit_ms: int
    start_ms: int
    nodes: tuple[int, ...]
    startup_ms: int
    load_ms: int
    loaded: int | None
    steps: list[TrainingStep] = field(default_factory=list)
    fault: NodeFailure | None = None
    end_ms: int = 0
    state: str = ""
    exit_code: str = "0:0"
    checkpoint: tuple[int, int] | None = None
    save_mode: SaveMode = "sync"
    hidden: Literal["log", "job", ""] = ""

    @property
    def first_ms(self) -> int:
        """When its first iteration begins."""
        return self.start_ms + self.startup_ms + self.load_ms

    @property
    def last_line_ms(self) -> int:
        """When its last iteration line is printed."""
        return max(step.end_ms for step in self.steps if step.kind == "iteration")

    @property
    def saved(self) -> int | None:
        """The newest iteration that is safe at its end."""
        return max((step.iteration for step in self.steps if step.keeps), default=self.loaded)


@dataclass(slots=True)
class SimulatedRun:
    """One training run: its attempts in time order."""

    name: str
    start_ms: int
    stop_ms: int
    attempts: list[SimulatedAttempt]


class StepPace:
    """How long the steps take: draws, with slow spells in between (FIELD D4)."""

    def __init__(
        self, length_ms: int, parameters: Parameters, rng: np.random.Generator, variety: Variety | None = None
    ) -> None:
        """Draw the slow spells of a whole archive."""
        self.parameters = parameters
        self.variety = variety
        self._rng = rng
        count = int(rng.poisson(parameters.slow_per_day * length_ms / 86_400_000))
        starts = np.sort(rng.integers(0, length_ms, count))
        lengths = rng.uniform(*parameters.slow_minutes, count) * 60_000
        factors = rng.uniform(*parameters.slow_factor, count)
        self._spells = [(int(s), int(s + n), float(f)) for s, n, f in zip(starts, lengths, factors, strict=True)]

    def seconds(self, bounds: tuple[int, int]) -> int:
        """A whole number of seconds within bounds, in ms."""
        return int(self._rng.integers(bounds[0], bounds[1] + 1)) * 1000

    def span_ms(self, begin_ms: int, first: bool) -> int:
        """The time of one print interval: mostly the same, slower in a spell and right after a start."""
        usual_s = self.parameters.print_interval_s
        for start, end, factor in self._spells:
            if start <= begin_ms < end:
                return round(usual_s * factor) * 1000
        jitter = int(self._rng.choice((0, -1, 1, 2, 4), p=(0.7, 0.1, 0.1, 0.07, 0.03)))
        return (usual_s + jitter + (12 if first else 0)) * 1000

    def data_ms(self) -> int:
        """What a print interval waits for data."""
        return 0 if self.variety is None else self.variety.data_ms(self.parameters.print_interval_s * 1000)


def advance(attempt: SimulatedAttempt, stop_ms: int, pace: StepPace, first_span_ms: int) -> None:
    """Fill in the steps until the attempt's fault, or until it saves and ends at the first line after `stop_ms`."""
    parameters = pace.parameters
    fault_ms = attempt.fault.fault_ms if attempt.fault else None
    now, iteration, spans, folded = attempt.first_ms, attempt.loaded or 0, 0, 0
    while True:
        length = pace.span_ms(now, first=False) if spans else first_span_ms
        data = pace.data_ms() if spans else 0
        if fault_ms is not None and now + length + data > fault_ms:
            return
        iteration += parameters.log_interval
        attempt.steps.append(TrainingStep("iteration", now, length + data, iteration, data_ms=data, folded_ms=folded))
        now, spans, folded = now + length + data, spans + 1, 0
        stopping = now >= stop_ms
        step = _stall(attempt, pace, (now, iteration), (spans, stopping))
        if step is None:
            continue
        if fault_ms is not None and step.end_ms > fault_ms:
            if step.kind in SAVES:
                attempt.steps.append(TrainingStep("save_unfinished", now, 0, iteration))
            return
        attempt.steps.append(_written(step, fault_ms))
        now += step.length_ms
        folded = step.length_ms if step.kind == "save_memory" else 0
        if stopping:
            attempt.fault = None
            attempt.end_ms = now
            return


def _stall(
    attempt: SimulatedAttempt, pace: StepPace, at: tuple[int, int], when: tuple[int, bool]
) -> TrainingStep | None:
    """What follows a line: a save or evaluation; `at` = the moment and iteration, `when` = lines so far, the last."""
    parameters, variety = pace.parameters, pace.variety
    (now, iteration), (spans, stopping) = at, when
    if stopping or spans % parameters.spans_per_save == 0:
        if attempt.save_mode == "async" and variety is not None and not stopping:
            blocking = variety.blocking_ms()
            return TrainingStep("save_async", now, blocking, iteration, done_ms=now + blocking + variety.write_ms())
        return TrainingStep("save", now, pace.seconds(parameters.save_stall_s), iteration)
    if spans % parameters.spans_per_evaluation == 4:
        return TrainingStep("evaluation", now, pace.seconds(parameters.evaluation_s), iteration)
    if attempt.save_mode == "memory":
        return TrainingStep("save_memory", now, MEMORY_SAVE_MS, iteration)
    return None


def _written(step: TrainingStep, fault_ms: int | None) -> TrainingStep:
    """A save in the background that the fault did not let finish."""
    if step.done_ms is None or fault_ms is None or step.done_ms <= fault_ms:
        return step
    return TrainingStep(step.kind, step.begin_ms, step.length_ms, step.iteration)

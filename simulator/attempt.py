"""A training run and each of its starts, step by step: iterations, saves, evaluations, until a fault or its end.

Every step is a whole number of seconds, so that the program's log, which prints seconds, loses nothing.
"""

from dataclasses import dataclass, field

import numpy as np

from simulator.fault import Failure
from simulator.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Step:
    """`iteration`, `save`, `save_unfinished` or `evaluation`; `iteration` = the last one done when it ends."""

    kind: str
    begin_ms: int
    length_ms: int
    iteration: int

    @property
    def end_ms(self) -> int:
        """When it is over."""
        return self.begin_ms + self.length_ms


@dataclass(slots=True)
class Attempt:
    """One job of the scheduler. `loaded` = the iteration whose checkpoint it starts from, None for none."""

    job_id: int
    run: str
    submit_ms: int
    start_ms: int
    nodes: tuple[int, ...]
    startup_ms: int
    load_ms: int
    loaded: int | None
    steps: list[Step] = field(default_factory=list)
    fault: Failure | None = None
    end_ms: int = 0
    state: str = ""
    exit_code: str = "0:0"

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
        return max((step.iteration for step in self.steps if step.kind == "save"), default=self.loaded)


@dataclass(slots=True)
class Run:
    """One training run: its attempts in time order."""

    name: str
    start_ms: int
    stop_ms: int
    attempts: list[Attempt]


class Pace:
    """How long the steps take: draws, with slow spells in between (FIELD D4)."""

    def __init__(self, length_ms: int, parameters: Parameters, rng: np.random.Generator) -> None:
        """Draw the slow spells of a whole archive."""
        self.parameters = parameters
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


def advance(attempt: Attempt, stop_ms: int, pace: Pace, first_span_ms: int) -> None:
    """Fill in the steps until the attempt's fault, or until it saves and ends at the first line after `stop_ms`."""
    parameters = pace.parameters
    fault_ms = attempt.fault.fault_ms if attempt.fault else None
    now, iteration, spans = attempt.first_ms, attempt.loaded or 0, 0
    while True:
        length = pace.span_ms(now, first=False) if spans else first_span_ms
        if fault_ms is not None and now + length > fault_ms:
            return
        iteration += parameters.log_interval
        attempt.steps.append(Step("iteration", now, length, iteration))
        now, spans = now + length, spans + 1
        stopping = now >= stop_ms
        if stopping or spans % parameters.spans_per_save == 0:
            kind, length = "save", pace.seconds(parameters.save_stall_s)
        elif spans % parameters.spans_per_evaluation == 4:
            kind, length = "evaluation", pace.seconds(parameters.evaluation_s)
        else:
            continue
        if fault_ms is not None and now + length > fault_ms:
            if kind == "save":
                attempt.steps.append(Step("save_unfinished", now, 0, iteration))
            return
        attempt.steps.append(Step(kind, now, length, iteration))
        now += length
        if stopping:
            attempt.fault = None
            attempt.end_ms = now
            return

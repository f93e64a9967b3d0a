"""Where the hours of a simulated run went: the truth that a ledger read from the logs has to equal.

The buckets mean what the ledger's do: what the next attempt did not load is lost (of the last one: what no finished
save holds), what lies between the last line and the fault is lost too, then comes detection, until the next starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.site import GPUS
from simulator.training.attempt import SimulatedAttempt, SimulatedRun

BUCKETS = (
    "productive",
    "checkpoint_save",
    "checkpoint_load",
    "startup",
    "detection",
    "waiting",
    "lost_work",
    "degraded",
    "data_stall",
    "evaluation",
    "unknown",
)
SLOW = 1.2


@dataclass(frozen=True, slots=True)
class SimulatedInterruption:
    """One attempt that ended badly, and what it cost until the next one iterates."""

    attempt: SimulatedAttempt
    lost_ms: int


@dataclass(frozen=True, slots=True)
class RunAccount:
    """A run's wall time in ms, by bucket; they sum to `wall_ms` exactly.

    `gpu_ms` = the same of every GPU held, or asked for while waiting; attempts that overlap hold theirs each.
    """

    run: str
    start_ms: int
    end_ms: int
    buckets_ms: dict[str, int]
    interruptions: tuple[SimulatedInterruption, ...]
    gpu_ms: dict[str, int]

    @property
    def wall_ms(self) -> int:
        """First submit to the end of the last attempt."""
        return self.end_ms - self.start_ms


@dataclass(slots=True)
class _AttemptTime:
    """One attempt from its start to its end: what is certain, and what each step did (step, bucket, ms)."""

    fixed: dict[str, int]
    steps: list[tuple[int, str, int]]

    def lose(self, after: int) -> int:
        """Move what was done after a step into lost work; how much that was."""
        lost = sum(length for step, _, length in self.steps if step > after)
        self.steps = [one for one in self.steps if one[0] <= after]
        self.fixed["lost_work"] += lost
        return lost

    def total(self) -> dict[str, int]:
        """Milliseconds by bucket."""
        spent = dict(self.fixed)
        for _, bucket, length in self.steps:
            spent[bucket] += length
        return spent


def account(run: SimulatedRun, usual_span_ms: int) -> RunAccount:
    """The account of a run. `usual_span_ms` = the undisturbed time of one print interval."""
    spent = [_spent(attempt, usual_span_ms) for attempt in run.attempts]
    costs = [0] * len(spent)
    for place, attempt in enumerate(run.attempts[1:], start=1):
        _settle(run.attempts, spent, costs, (place, attempt.checkpoint))
    last = len(spent) - 1
    if run.attempts[last].fault is not None:
        saved = [number for number, step in enumerate(run.attempts[last].steps) if step.keeps]
        costs[last] += spent[last].lose(saved[-1] if saved else -1)
    total, gpus = dict.fromkeys(BUCKETS, 0), dict.fromkeys(BUCKETS, 0)
    previous_end = run.attempts[0].submit_ms
    for place, attempt in enumerate(run.attempts):
        own, size = spent[place].total(), len(attempt.nodes) * GPUS
        waiting = max(0, attempt.start_ms - previous_end)
        for bucket, length in own.items():
            gpus[bucket] += length * size
            total[bucket] += length
        gpus["waiting"] += waiting * size
        total["waiting"] += waiting
        unlit = max(0, previous_end - attempt.start_ms)  # the one before is still there: its time is this one's
        total["detection"] -= unlit
        if attempt.fault is not None:
            costs[place] += own["detection"] + attempt.fault.fault_ms - _done_ms(attempt)
        if place and run.attempts[place - 1].fault is not None:
            costs[place - 1] += waiting + own["startup"] + own["checkpoint_load"]
        previous_end = attempt.end_ms
    faulty = [place for place, attempt in enumerate(run.attempts) if attempt.fault is not None]
    return RunAccount(
        run=run.name,
        start_ms=run.attempts[0].submit_ms,
        end_ms=run.attempts[-1].end_ms,
        buckets_ms=total,
        interruptions=tuple(SimulatedInterruption(run.attempts[place], costs[place]) for place in faulty),
        gpu_ms=gpus,
    )


def _settle(
    attempts: Sequence[SimulatedAttempt],
    spent: Sequence[_AttemptTime],
    costs: list[int],
    loads: tuple[int, tuple[int, int] | None],
) -> None:
    """An attempt loads a checkpoint: whatever was done after that was saved is lost."""
    place, checkpoint = loads
    whose, step = (-1, -1) if checkpoint is None else checkpoint
    lost = sum(spent[at].lose(-1) for at in range(whose + 1, place))
    lost += spent[whose].lose(step) if whose >= 0 else 0
    faulty = [at for at in range(place) if attempts[at].fault is not None]
    if faulty:
        costs[faulty[-1]] += lost


def _done_ms(attempt: SimulatedAttempt) -> int:
    return max(step.end_ms for step in attempt.steps)


def _spent(attempt: SimulatedAttempt, usual_span_ms: int) -> _AttemptTime:
    """One attempt from its start to its end, before anything is lost of its steps."""
    fixed = dict.fromkeys(BUCKETS, 0)
    fixed["startup"], fixed["checkpoint_load"] = attempt.startup_ms, attempt.load_ms
    steps: list[tuple[int, str, int]] = []
    for place, step in enumerate(attempt.steps):
        if step.kind == "iteration":
            worked = step.length_ms - step.data_ms
            slow = worked - usual_span_ms if worked > SLOW * usual_span_ms else 0
            if place:
                steps.append((place, "degraded", slow))
            else:  # whatever made the first line slow, it belongs to the start
                fixed["startup"] += slow
            steps += [(place, "productive", worked - slow), (place, "data_stall", step.data_ms)]
        elif step.kind == "evaluation":
            steps.append((place, "evaluation", step.length_ms))
        else:
            fixed["checkpoint_save"] += step.length_ms
    if attempt.fault is not None:
        fixed["lost_work"] += attempt.fault.fault_ms - _done_ms(attempt)
        fixed["detection"] += attempt.end_ms - attempt.fault.fault_ms
    return _AttemptTime(fixed, steps)

"""The ledger: every millisecond of a run's wall time in exactly one bucket, and what each interruption cost.

    ledger = account(RunRecords(run="llm-70b", jobs=jobs, log=lines, faults=faults))
    sum(ledger.buckets_ms.values()) == ledger.wall_ms      # always

What each bucket means is in docs/goodput.md. A log without times is placed by what its lines cover.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goodput.formulas.ettr import run_ratios
from goodput.formulas.shape import Shape
from goodput.log.training_log import IterationPace, TrainingLine
from goodput.timeline import BUCKETS, HOUR_MS, Bucket, Segment, bounds_ms, from_ms, gpu_ms, sums
from goodput.wall_time.attempts import Interruption, UnfinishedSave
from goodput.wall_time.wall import AttemptSpan
from store.records.event import Event, format_time
from store.records.job import Job
from store.records.outage import Outage
from store.records.verdict import Verdict


@dataclass(frozen=True, slots=True)
class RunRecords:
    """What is known of a run.

    `log` is in the order in which it was written; `leaves` is each node's leaf switch, `gpus` how many it has.
    `pace` is that of the whole log, where `log` is folded (`goodput/log/folded_log.py`). `verdicts` are those on its
    stops, by the end of the attempt in milliseconds.
    """

    run: str
    jobs: Sequence[Job] = ()
    log: Sequence[TrainingLine] = ()
    faults: Sequence[Event] = ()
    outages: Sequence[Outage] = ()
    leaves: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    pace: IterationPace | None = None
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A run's account. `start_ms` counts from 1970, or from the log's beginning where `dated` is False.

    `spans` = its attempts, each with its own time; of two that overlap both have theirs (wall_time/wall.py).
    `held` = the time of its attempts, each stretch with its GPUs (wall_time/wall.py); None = that is unknown.
    `saves` = the stalls of all finished saves, `saves_now` those that tell how it saves now (wall_time/saves.py).
    `iteration_ms` = its usual time of an iteration, `shape` = its model's, where the log tells it.
    """

    run: str
    nodes: int | None
    gpus: int | None
    dated: bool
    start_ms: int
    end_ms: int
    segments: tuple[Segment, ...]
    interruptions: tuple[Interruption, ...]
    saves: tuple[Segment, ...]
    spans: tuple[AttemptSpan, ...]
    is_open: bool
    held: tuple[tuple[Segment, int], ...] | None = None
    iteration_ms: float | None = None
    saves_now: tuple[Segment, ...] = ()
    shape: Shape | None = None
    unfinished_saves: tuple[UnfinishedSave, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attempts(self) -> int:
        """How often it was started, or waited for a start."""
        return len(self.spans)

    @property
    def wall_ms(self) -> int:
        """From the first submit or start known to the end, or the last data."""
        return self.end_ms - self.start_ms

    @property
    def buckets_ms(self) -> dict[Bucket, int]:
        """Milliseconds in each bucket; they sum to `wall_ms`."""
        return sums(self.segments)

    @property
    def gpu_ms(self) -> dict[Bucket, int] | None:
        """GPU-milliseconds in each bucket; None where the size of an attempt is not known."""
        return gpu_ms(self.held)

    @property
    def bounds_ms(self) -> dict[Bucket, tuple[int, int]]:
        """The least and the most milliseconds that each bucket may truly hold (goodput/timeline.py)."""
        return bounds_ms(self.segments)

    @property
    def goodput(self) -> float | None:
        """Productive share of wall time (0-1); None for a run without wall time."""
        return self.buckets_ms["productive"] / self.wall_ms if self.wall_ms else None

    def to_json(self) -> dict[str, Any]:
        """The object that `foreshock goodput --json` prints for a run."""
        buckets, held_ms = self.buckets_ms, self.gpu_ms
        return {
            "run": self.run,
            "nodes": self.nodes,
            "gpus": self.gpus,
            "start": format_time(from_ms(self.start_ms)) if self.dated else None,
            "end": format_time(from_ms(self.end_ms)) if self.dated else None,
            "wall_s": self.wall_ms / 1000,
            "buckets": {bucket: buckets[bucket] / 1000 for bucket in BUCKETS},
            "goodput": self.goodput,
            **run_ratios({name: float(ms) for name, ms in buckets.items()}),
            "bounds": {bucket: [least / 1000, most / 1000] for bucket, (least, most) in self.bounds_ms.items()},
            "gpu_hours": None if held_ms is None else {b: held_ms[b] / HOUR_MS for b in BUCKETS},
            "interruptions": [interruption.to_json() for interruption in self.interruptions],
            "unfinished_saves": [
                {"time": format_time(from_ms(save.time_ms)) if self.dated else None, "iteration": save.iteration}
                for save in self.unfinished_saves
            ],
            "details": dict(self.details),
        }

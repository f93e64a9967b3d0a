"""The ledger: every millisecond of a run's wall time in exactly one bucket, and what each interruption cost.

    ledger = account(RunRecords(run="llm-70b", jobs=jobs, log=lines, faults=faults))
    sum(ledger.buckets_ms.values()) == ledger.wall_ms      # always

What each bucket means is in docs/goodput.md. A log without times is placed by what its lines cover.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goodput.formulas.ratios import run_ratios
from goodput.formulas.shape import Shape
from goodput.log.pace import Pace, pace_of
from goodput.log.training_log import LogLine, known_at, sessions, shape_in, with_told_ends
from goodput.timeline import BUCKETS, HOUR_MS, Bucket, Segment, from_ms, merged, sums
from goodput.wall_time.attempts import attempts_of
from goodput.wall_time.blame import Evidence
from goodput.wall_time.bounds import bounds_ms
from goodput.wall_time.details import details_of
from goodput.wall_time.gpu_time import gpu_ms, gpus_of, held, nodes_in, sized
from goodput.wall_time.interruption import Interruption
from goodput.wall_time.saves_now import saves_now
from goodput.wall_time.settling import settle
from goodput.wall_time.walk import UnfinishedSave, Walked, Walker
from goodput.wall_time.wall import interruptions_of, lay
from store.event import Event, format_time
from store.job import Job
from store.outage import Outage


@dataclass(frozen=True, slots=True)
class RunRecords:
    """What is known of a run.

    `log` is in the order in which it was written; `leaves` is each node's leaf switch, `gpus` how many it has.
    `pace` is that of the whole log, where `log` is folded (`goodput/log/fold.py`).
    """

    run: str
    jobs: Sequence[Job] = ()
    log: Sequence[LogLine] = ()
    faults: Sequence[Event] = ()
    outages: Sequence[Outage] = ()
    leaves: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    pace: Pace | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """A run's account. `start_ms` counts from 1970, or from the log's beginning where `dated` is False.

    `held` = the time of its attempts, each stretch with its GPUs (wall_time/gpu_time.py); None = that is unknown.
    `saves` = the stalls of all finished saves, `saves_now` those that tell how it saves now (wall_time/saves_now.py).
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
    attempts: int
    is_open: bool
    held: tuple[tuple[Segment, int], ...] | None = None
    iteration_ms: float | None = None
    saves_now: tuple[Segment, ...] = ()
    shape: Shape | None = None
    unfinished_saves: tuple[UnfinishedSave, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

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
        """The least and the most milliseconds that each bucket may truly hold (goodput/wall_time/bounds.py)."""
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


def account(records: RunRecords, until_ms: int | None = None) -> Ledger:
    """Split a run's wall time.

    Args:
        until_ms: account as of this moment, milliseconds since 1970: what was known later is left out.
    """
    known = records.log if until_ms is None else known_at(records.log, until_ms)
    log = with_told_ends(known)
    phases = [line for line in log if line.kind == "training_phase"]
    attempts = attempts_of(records.jobs, sessions(log), until_ms, phases)
    begins = [attempt.begin_ms for attempt in attempts if attempt.begin_ms is not None]
    start_ms = min(begins, default=0)
    # A log without any date counts from its own beginning: no moment of the calendar bounds it.
    limit_ms = until_ms if begins else None
    evidence = Evidence(records.faults, records.outages, records.leaves)
    walker = Walker(log, evidence, limit_ms, records.pace or pace_of(known))
    walked: list[Walked] = []
    cursor = start_ms
    for attempt in attempts:
        walked.append(walker.walk(attempt, cursor))
        cursor = max(cursor, walked[-1].end_ms)
    settle(walked, walker.tells_saves)
    wall = lay(walked, start_ms)
    return Ledger(
        run=records.run,
        nodes=max(map(nodes_in, attempts), default=0) or None,
        gpus=gpus_of(max(attempts, key=nodes_in), records.gpus) if attempts else None,
        dated=bool(begins),
        start_ms=start_ms,
        end_ms=cursor,
        segments=merged(piece.segment for piece in wall),
        interruptions=sized(interruptions_of(walked, wall), walked, records.gpus),
        saves=tuple(save for one in walked for save in one.saves),
        attempts=len(attempts),
        is_open=bool(attempts) and attempts[-1].end_ms is None,
        held=held(walked, wall, records.gpus),
        iteration_ms=walker.median_ms,
        shape=shape_in(log),
        saves_now=saves_now([one.saves for one in walked]),
        unfinished_saves=tuple(save for one in walked for save in one.unfinished),
        details=details_of(walked, log),
    )

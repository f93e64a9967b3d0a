"""The whole cluster over a period: which GPU-hours there were, and what became of them, level by level.

    existing -> schedulable -> allocated -> running -> productive

existing     GPUs of nodes in service.
schedulable  less those of nodes that the scheduler had taken out (planned or not).
allocated    those that jobs held: Google's all-allocated chip time.
running      less starting, loading, standing still unnoticed, and what no log tells.
productive   iterations that count.

Google's ML Productivity Goodput (arXiv 2502.06982) is scheduling x runtime x program goodput: here allocated over
existing, productive over allocated, and the runs' MFU, each weighted by its productive GPU-hours. Meta's effective
training time ratio (arXiv 2410.21680) is productive over available wall time, where productive leaves out only the
wait, the way back after interruptions and the work that was lost: saves, evaluations and slow steps stay in.
All amounts are whole GPU-milliseconds, so that the levels and their losses add up exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from goodput.formulas.ettr import ettr_json
from goodput.timeline import DAY_MS, HOUR_MS, from_ms, to_ms
from store.nodes.inventory import OutageSpan, ServiceSpan
from store.plural import many
from store.records.event import format_time

# Of a job's time, what is no training though its GPUs are held.
NOT_RUNNING = ("startup", "checkpoint_load", "detection", "unknown")


@dataclass(slots=True)
class Level:
    """One period, in GPU-milliseconds. `buckets` = runs' time; `unmeasured_ms` = wall time of runs of unknown size."""

    start_ms: int
    end_ms: int
    existing: int = 0
    out_planned: int = 0
    out_unplanned: int = 0
    buckets: dict[str, int] = field(default_factory=dict)
    unmeasured_ms: int = 0

    @property
    def schedulable(self) -> int:
        """What jobs could have had."""
        return self.existing - self.out_planned - self.out_unplanned

    @property
    def allocated(self) -> int:
        """What jobs held."""
        return sum(self.buckets.values()) - self.buckets.get("waiting", 0)

    @property
    def running(self) -> int:
        """What was in the training loop, for better or worse."""
        return self.allocated - sum(self.buckets.get(name, 0) for name in NOT_RUNNING)

    @property
    def productive(self) -> int:
        """What counts."""
        return self.buckets.get("productive", 0)


def levels(
    window_ms: tuple[int, int],
    service: Iterable[ServiceSpan],
    outages: Sequence[OutageSpan],
    days: Iterable[tuple[datetime, str, int, int, int]],
) -> list[Level]:
    """A level for each UTC day of a window; its last day ends with the window.

    Args:
        window_ms: since (a midnight) and until, milliseconds since 1970.
        days: of each day and bucket: wall ms, GPU ms, wall ms of runs whose GPUs are not known.
    """
    since, until = window_ms
    found = [Level(start, min(start + DAY_MS, until)) for start in range(since // DAY_MS * DAY_MS, until, DAY_MS)]
    at = {level.start_ms: level for level in found}
    for span in service:
        begin, end = (
            since if span.since is None else to_ms(span.since),
            until if span.until is None else to_ms(span.until),
        )
        for level in found:
            level.existing += span.gpus * _within(level, begin, end)
    for start, end, gpus, planned in _without_overlap(outages, until):
        for start_ms in range(max(start, since) // DAY_MS * DAY_MS, min(end, until), DAY_MS):
            level = at[start_ms]
            amount = gpus * _within(level, start, end)
            if planned:
                level.out_planned += amount
            else:
                level.out_unplanned += amount
    for day, bucket, _wall, gpu_ms, unmeasured in days:
        if (one := at.get(to_ms(day))) is not None:
            one.buckets[bucket] = one.buckets.get(bucket, 0) + gpu_ms
            one.unmeasured_ms += unmeasured
    return found


def _within(level: Level, start_ms: int, end_ms: int) -> int:
    return max(0, min(level.end_ms, end_ms) - max(level.start_ms, start_ms))


def _without_overlap(outages: Sequence[OutageSpan], until_ms: int) -> Iterable[tuple[int, int, int, bool]]:
    """Outages (by node and start) without what an earlier one of the node covers: start, end, GPUs, planned."""
    node, covered = None, 0
    for outage in outages:
        if outage.node != node:
            node, covered = outage.node, 0
        start = max(to_ms(outage.start), covered)
        end = until_ms if outage.end is None else min(to_ms(outage.end), until_ms)
        if end > start:
            yield start, end, outage.gpus, outage.planned
            covered = end


def summed(parts: Sequence[Level]) -> Level:
    """Days as one period."""
    whole = Level(parts[0].start_ms, parts[-1].end_ms)
    for part in parts:
        whole.existing += part.existing
        whole.out_planned += part.out_planned
        whole.out_unplanned += part.out_unplanned
        whole.unmeasured_ms += part.unmeasured_ms
        for bucket, amount in part.buckets.items():
            whole.buckets[bucket] = whole.buckets.get(bucket, 0) + amount
    return whole


def program_goodput(mfus: Mapping[str, float], productive: Mapping[str, int], whole: int) -> tuple[float | None, float]:
    """The runs' MFU weighted by productive GPU time, and the share of all such time whose MFU is known (0-1)."""
    known = sum(productive.get(run, 0) for run in mfus)
    if not known:
        return None, 0.0
    return sum(mfus[run] * productive.get(run, 0) for run in mfus) / known, known / whole


def level_json(level: Level, program: float | None = None) -> dict[str, Any]:
    """A period as it is printed. Without nodes of known size what rests on them is null; so is a ratio of nothing."""
    known = level.existing > 0
    existing = level.existing if known else None
    scheduling, runtime = _ratio(level.allocated, existing), _ratio(level.productive, level.allocated)
    whole = None if scheduling is None or runtime is None or program is None else scheduling * runtime * program
    amounts: dict[str, int | None] = {
        "existing": existing,
        "out_planned": level.out_planned if known else None,
        "out_unplanned": level.out_unplanned if known else None,
        "schedulable": level.schedulable if known else None,
        "idle": level.schedulable - level.allocated if known else None,
        "allocated": level.allocated,
        "running": level.running,
        "productive": level.productive,
    }
    return {
        "since": format_time(from_ms(level.start_ms)),
        "until": format_time(from_ms(level.end_ms)),
        "gpu_hours": {name: None if amount is None else amount / HOUR_MS for name, amount in amounts.items()},
        "buckets": {name: amount / HOUR_MS for name, amount in sorted(level.buckets.items())},
        "unmeasured_run_hours": level.unmeasured_ms / HOUR_MS,
        "scheduling_goodput": scheduling,
        "runtime_goodput": runtime,
        "program_goodput": program,
        "ml_productivity_goodput": whole,
        "productive_of_existing": _ratio(level.productive, existing),
        "ettr": ettr_json(level.buckets),
    }


def _ratio(part: int, whole: int | None) -> float | None:
    return part / whole if whole else None


def doubts_of(level: Level, service: Iterable[ServiceSpan]) -> list[str]:
    """In plain sentences, what a reader should know before trusting the period's figures."""
    said = []
    without = sum(span.without_gpus for span in service)
    if level.existing <= 0:
        said.append("No node in service with a known number of GPUs: what existed is not known. Load nodes.csv.")
    elif without:
        nodes = many(without, "node has", "nodes have")
        said.append(f"{nodes} no known number of GPUs: left out.")
    if level.unmeasured_ms:
        hours = level.unmeasured_ms / HOUR_MS
        said.append(f"{hours:,.0f} hours of runs whose GPUs are not known are left out.")
    if level.existing > 0 and level.allocated > level.schedulable:
        over = (level.allocated - level.schedulable) / HOUR_MS
        said.append(
            f"Jobs held {over:,.0f} GPU-hours more than there were: they share nodes, or worked on drained ones."
        )
    return said

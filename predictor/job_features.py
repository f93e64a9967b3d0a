"""Features of a node against its job: all nodes of one attempt do the same work, so that one that is hotter stands out.

The nodes of a job may be anywhere in the fleet. What they told is therefore kept as sums of each attempt's hours, which
are small: parts of a fleet make their own, and `joined` adds them up, exactly (`fixed_point`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.fixed_point import fixed, to_float
from predictor.history import DAY_MS, HOUR_MS, Bools, Floats, History, Ints, Jobs
from predictor.rows import Rows
from predictor.windows import Timeline

# What is compared, and the feature that it gives.
COMPARED = {
    "gpu_temp_mean_c": "gpu_temp_above_job_c",
    "power_mean_w": "power_above_job_w",
    "gpu_util_mean": "gpu_util_above_job",
}


@dataclass(frozen=True, slots=True)
class JobHours:
    """What the nodes of each attempt told in each hour that they were held for: one entry an attempt and hour.

    `total` (sums in fixed point) and `count` (figures added) are (entries, COMPARED).
    """

    attempt: Ints
    time_ms: Ints  # the end of the hour
    total: Ints
    count: Ints


def job_hours(history: History) -> JobHours:
    """The sums of a history's own telemetry."""
    telemetry = history.telemetry
    attempt = _attempts(history.jobs, telemetry.node, telemetry.time_ms, HOUR_MS)
    held = attempt >= 0
    columns = [telemetry.column(name)[held] for name in COMPARED]
    total = np.stack([fixed(column) for column in columns], axis=1)
    count = np.stack([np.isfinite(column).astype(np.int64) for column in columns], axis=1)
    return _added(JobHours(attempt[held], telemetry.time_ms[held], total, count))


def joined(parts: Sequence[JobHours]) -> JobHours:
    """The sums of all parts of a fleet."""
    return _added(
        JobHours(
            np.concatenate([part.attempt for part in parts]),
            np.concatenate([part.time_ms for part in parts]),
            np.concatenate([part.total for part in parts]),
            np.concatenate([part.count for part in parts]),
        )
    )


def _added(entries: JobHours) -> JobHours:
    """Entries of the same attempt and hour added up."""
    if not len(entries.attempt):
        return entries
    order = np.lexsort((entries.time_ms, entries.attempt))
    attempt, time_ms = entries.attempt[order], entries.time_ms[order]
    first = np.flatnonzero(np.append(True, (attempt[1:] != attempt[:-1]) | (time_ms[1:] != time_ms[:-1])))
    total, count = (np.add.reduceat(one[order], first, axis=0) for one in (entries.total, entries.count))
    return JobHours(attempt[first], time_ms[first], total, count)


def above_job(
    own: Mapping[str, Floats | NDArray[np.float32]], jobs: Jobs, rows: Rows, hours: JobHours
) -> dict[str, Floats]:
    """Each row's own mean of the last day less that of all nodes of its job; NaN where no job holds the node.

    Args:
        own: the node's own means, by the names of COMPARED; they count as the float32 that a feature is.
    """
    line = Timeline.of(hours.attempt, hours.time_ms)
    first, end = line.within(_attempts(jobs, rows.node, rows.time_ms, 0), rows.time_ms + 1, DAY_MS)
    found = {}
    for position, (name, feature) in enumerate(COMPARED.items()):
        total, count = (_between(one[:, position][line.order], first, end) for one in (hours.total, hours.count))
        with np.errstate(invalid="ignore"):
            of_job = to_float(total) / count
        found[feature] = own[name].astype(np.float32) - of_job
    return found


def _between(whole: Ints, first: Ints, end: Ints) -> Ints:
    running = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(whole)])
    between: Ints = running[end] - running[first]
    return between


def _attempts(jobs: Jobs, node: Ints, at: Ints, whole_ms: int) -> Ints:
    """The attempt that held each node from at - whole_ms until `at`; -1 where none did."""
    line = Timeline.of(jobs.node, jobs.start_ms)
    if not len(line.keys):
        return np.full(len(node), -1, dtype=np.int64)
    last = line.before(node, at - whole_ms + 1) - 1
    job = line.order[np.maximum(last, 0)]
    holds: Bools = (last >= 0) & (jobs.node[job] == node) & (jobs.end_ms[job] >= at)
    return np.where(holds, jobs.attempt[job], -1)

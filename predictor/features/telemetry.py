"""Features of telemetry: levels, trends, how far a node is from its peers, and what is missing.

Only hours that have ended count: at 10:20 the newest is 09:00-10:00.
Peers are the other nodes of the leaf, which breathe the same air, and those of the job, which do the same work.
Vanished telemetry is itself a precursor (FIELD A1, "GPUs fail quietly"): gaps are features and are never filled with 0.
An hour in which nobody listened (a collector that restarts) is no gap of a node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictor.history.arrays import (
    DAY_MS,
    HOUR_MS,
    Bools,
    Feature,
    Floats,
    History,
    Ints,
    Jobs,
    Rows,
    Telemetry,
    WindowIndex,
    largest_within,
)

# Telemetry's figures as whole numbers of 2**-24: their sums are the same in whatever order and parts they are added.
#
# A float32 below 2**20 loses no more than 3e-8 by it; what is larger counts as 2**20 (no node draws a megawatt).
# A sum holds 2**19 of the largest; sums that run over more wrap around, and their differences are right again.

_ONE = 2.0**24
_LARGEST = 2.0**20


def fixed(values: NDArray[np.float32]) -> Ints:
    """Whole numbers of 2**-24; what was not measured (NaN, infinite) counts as nothing."""
    measured = np.where(np.isfinite(values), values, np.float32(0.0)).astype(np.float64)
    # In place: a week of a large fleet is millions of figures.
    np.clip(measured, -_LARGEST, _LARGEST, out=measured)
    np.multiply(measured, _ONE, out=measured)
    return np.rint(measured, out=measured).astype(np.int64)


# What a figure counts as at the least and the most among peers: one that lies or is broken moves the others no further.
# A GPU shuts down below 120 degrees, and a module draws no more than 3 kW. Its own figures stay as they are.
_PEER_RANGE = {"gpu_temp_mean_c": (0.0, 120.0), "power_mean_w": (0.0, 3000.0), "gpu_util_mean": (0.0, 1.0)}


def of_peers(telemetry: Telemetry, name: str) -> NDArray[np.float32]:
    """A column as the figures of peers."""
    low, high = _PEER_RANGE[name]
    column: NDArray[np.float32] = np.clip(telemetry.column(name), np.float32(low), np.float32(high))
    return column


def to_float(whole: Ints) -> Floats:
    """The figures that whole numbers stand for."""
    return whole / _ONE


# Features of a node against its job: all nodes of one attempt do the same work, so that one that is hotter stands out.
#
# The nodes of a job may be anywhere in the fleet. What they told is therefore kept as sums of each attempt's hours,
# which are small: parts of a fleet make their own, and `joined` adds them up, exactly (`fixed_point`).

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
    columns = [of_peers(telemetry, name)[held] for name in COMPARED]
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
    line = WindowIndex.of(hours.attempt, hours.time_ms)
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
    line = WindowIndex.of(jobs.node, jobs.start_ms)
    if not len(line.keys):
        return np.full(len(node), -1, dtype=np.int64)
    last = line.before(node, at - whole_ms + 1) - 1
    job = line.order[np.maximum(last, 0)]
    holds: Bools = (last >= 0) & (jobs.node[job] == node) & (jobs.end_ms[job] >= at)
    return np.where(holds, jobs.attempt[job], -1)


# Sums, and how many figures were added, one a row.
_SumAndCount: TypeAlias = tuple[Floats, Floats]

WEEK_MS = 7 * DAY_MS
# Before the last day: what is usual for the node itself.
USUAL_MS = DAY_MS + WEEK_MS

FEATURES: tuple[Feature, ...] = (
    Feature("gpu_temp_max_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_mean_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_trend_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_above_leaf_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_above_job_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_spread_c", "temperature", reference=None, monotonic=1),
    Feature("gpu_temp_spread_trend_c", "temperature", reference=None, monotonic=1),
    Feature("memory_temp_max_c", "temperature", reference=None, monotonic=1),
    Feature("power_mean_w", "power", reference=None),
    Feature("power_trend_w", "power", reference=None),
    Feature("power_max_w", "power", reference=None),
    Feature("power_above_leaf_w", "power", reference=None),
    Feature("power_above_job_w", "power", reference=None),
    Feature("gpu_util_mean", "load", reference=None),
    Feature("gpu_util_above_job", "load", reference=None),
    Feature("sm_clock_min_mhz", "load", reference=None),
    Feature("telemetry_gap_24h", "telemetry_gap"),
    Feature("telemetry_gap_7d", "telemetry_gap"),
    Feature("samples_lost_24h", "telemetry_gap"),
    Feature("gpus_missing", "gpu_missing", monotonic=1),
    Feature("gpus_missing_24h", "gpu_missing", monotonic=1),
)
_PEERED = (("gpu_temp_mean_c", "gpu_temp_above_leaf_c"), ("power_mean_w", "power_above_leaf_w"))


@dataclass(frozen=True, slots=True)
class _DayWindows:
    """The entries [day, end) of each row's last 24 hours; `telemetry` may hold no others."""

    telemetry: Telemetry
    day: Ints
    end: Ints
    added: dict[str, _SumAndCount] = field(default_factory=dict)

    @classmethod
    def of(cls, telemetry: Telemetry, rows: Rows) -> "_DayWindows":
        """Those of rows of like moments are few beside all that is held: only they are added up then."""
        since_ms = int(rows.time_ms.min()) + 1 - DAY_MS if len(rows) else 0
        newest = telemetry.time_ms >= since_ms
        if 2 * int(newest.sum()) < len(newest):
            told = telemetry.node[newest], telemetry.time_ms[newest], telemetry.values[newest]
            telemetry = Telemetry(*told, telemetry.lit_ms)
        line = WindowIndex.of(telemetry.node, telemetry.time_ms)
        # An hour that ends at the very moment has ended: the windows are (t - w, t].
        return cls(telemetry, *line.within(rows.node, rows.time_ms + 1, DAY_MS))

    def sums(self, name: str) -> _SumAndCount:
        """The sum and number of what was measured; a column is added up once."""
        if name not in self.added:
            self.added[name] = _sums(self.telemetry.column(name), self.day, self.end)
        return self.added[name]


@dataclass(frozen=True, slots=True)
class _TelemetryWindows:
    """The entries of each row's windows: [day, end) is the last 24 hours, [usual, day) the week before."""

    telemetry: Telemetry
    usual: Ints
    day: Ints
    end: Ints
    newest: _DayWindows

    def sums(self, name: str, before: bool = False) -> _SumAndCount:
        """The sum and number of what was measured in the last day, or in the week before."""
        return _sums(self.telemetry.column(name), self.usual, self.day) if before else self.newest.sums(name)

    def mean(self, name: str, before: bool = False) -> Floats:
        """The mean of the last day, or of the week before it; NaN where nothing was measured."""
        total, count = self.sums(name, before)
        with np.errstate(invalid="ignore"):
            means: Floats = total / count
        return means

    def high(self, name: str) -> Floats:
        """The highest of the last day."""
        return largest_within(self.newest.telemetry.column(name), self.newest.day, self.newest.end)

    def trend(self, name: str) -> Floats:
        """The last day's mean less that of the week before."""
        return self.mean(name) - self.mean(name, before=True)


def compute(history: History, rows: Rows) -> dict[str, Floats]:
    """Every telemetry feature; NaN where nothing was measured."""
    telemetry = history.telemetry
    line = WindowIndex.of(telemetry.node, telemetry.time_ms)
    now, newest = rows.time_ms + 1, _DayWindows.of(telemetry, rows)
    usual, week, day, end = (line.before(rows.node, now - back) for back in (USUAL_MS, WEEK_MS, DAY_MS, 0))
    requested = _TelemetryWindows(telemetry, usual, day, end, newest)
    found = _levels(requested) | _gaps(requested, week, rows) | _missing_gpus(requested, rows, history.fleet.gpus)
    of_jobs = job_hours(replace(history, telemetry=newest.telemetry))
    return found | _above_leaf(history, rows, requested) | above_job(found, history.jobs, rows, of_jobs)


def _sums(values: NDArray[np.float32], first: Ints, end: Ints) -> _SumAndCount:
    """The sum and number of the measured values[first:end], one a row."""
    total, count = _running(fixed(values)), _running(np.isfinite(values))
    return to_float(total[end] - total[first]), (count[end] - count[first]).astype(np.float64)


def _running(whole: Ints | Bools) -> Ints:
    running = np.zeros(len(whole) + 1, dtype=np.int64)
    np.cumsum(whole, out=running[1:])
    return running


def _levels(requested: _TelemetryWindows) -> dict[str, Floats]:
    """Temperature, power and load of the last 24 hours, and against the node's own week before."""
    return {
        "gpu_temp_max_c": requested.high("gpu_temp_max_c"),
        "gpu_temp_mean_c": requested.mean("gpu_temp_mean_c"),
        "gpu_temp_trend_c": requested.trend("gpu_temp_mean_c"),
        "gpu_temp_spread_c": requested.mean("gpu_temp_spread_c"),
        "gpu_temp_spread_trend_c": requested.trend("gpu_temp_spread_c"),
        "memory_temp_max_c": requested.high("memory_temp_max_c"),
        "power_mean_w": requested.mean("power_mean_w"),
        "power_trend_w": requested.trend("power_mean_w"),
        "power_max_w": requested.high("power_max_w"),
        "gpu_util_mean": requested.mean("gpu_util_mean"),
        "sm_clock_min_mhz": requested.mean("sm_clock_min_mhz"),
    }


def _above_leaf(history: History, rows: Rows, requested: _TelemetryWindows) -> dict[str, Floats]:
    """The node's last day less that of the leaf's other nodes."""
    newest, leaf = requested.newest, history.fleet.leaf
    # Nodes of no known leaf are each other's peers.
    line = WindowIndex.of(leaf[newest.telemetry.node] + 1, newest.telemetry.time_ms)
    requested_leaf = line.within(leaf[rows.node] + 1, rows.time_ms + 1, DAY_MS)
    found = {}
    for measured, name in _PEERED:
        told = of_peers(newest.telemetry, measured)
        own_total, own_count = _sums(told, newest.day, newest.end)
        total, count = _sums(told[line.order], *requested_leaf)
        with np.errstate(invalid="ignore", divide="ignore"):
            others = np.where(count > own_count, (total - own_total) / (count - own_count), np.nan)
        found[name] = requested.mean(measured) - others
    return found


def _gaps(requested: _TelemetryWindows, week: Ints, rows: Rows) -> dict[str, Floats]:
    """The share of listened-to hours without a roll-up, and of samples below the node's usual number.

    A node that gave no telemetry in the 8 days before has none to miss: NaN.
    """
    telemetry, now = requested.telemetry, rows.time_ms + 1
    watched = requested.end > requested.usual
    found = {}
    for name, window, first in (
        ("telemetry_gap_24h", DAY_MS, requested.day),
        ("telemetry_gap_7d", WEEK_MS, week),
    ):
        lit = np.searchsorted(telemetry.lit_ms, now) - np.searchsorted(telemetry.lit_ms, now - window)
        gap = np.maximum(lit - (requested.end - first), 0) / (window / HOUR_MS)
        found[name] = np.where(watched, gap, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        found["samples_lost_24h"] = 1.0 - requested.mean("samples") / requested.mean("samples", before=True)
    return found


def _missing_gpus(requested: _TelemetryWindows, rows: Rows, gpus: Floats) -> dict[str, Floats]:
    """GPUs that a node should have and telemetry did not show: in the newest hour, and on average over 24 hours."""
    telemetry = requested.telemetry
    seen = telemetry.column("gpus_seen")
    most = largest_within(seen, requested.usual, requested.end)
    expected = np.fmax(gpus[rows.node], most)
    # The newest hour is the last that has ended; a node that did not report in it shows nothing at all.
    fresh = telemetry.time_ms[np.maximum(requested.end - 1, 0)] if len(seen) else np.zeros(len(rows), dtype=np.int64)
    reported = (requested.end > requested.usual) & (fresh == rows.time_ms // HOUR_MS * HOUR_MS)
    newest = np.where(reported, seen[np.maximum(requested.end - 1, 0)] if len(seen) else np.nan, np.nan)
    return {
        "gpus_missing": np.where(np.isnan(most), np.nan, np.maximum(expected - newest, 0.0)),
        "gpus_missing_24h": np.where(np.isnan(most), np.nan, np.maximum(expected - requested.mean("gpus_seen"), 0.0)),
    }

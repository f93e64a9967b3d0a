"""What dcgm-exporter would have said: one sample of every GPU each hour, gauges drawn, counters summed up.

Columns are DCGM fields. A GPU that cannot be sampled has no row: gaps stay gaps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.site import DAY_MS, GPUS, HOUR_MS
from simulator.state import SimulatedCluster
from store.records.telemetry import COUNTERS, GAUGES

Floats = NDArray[np.float32]
COUNTER_FIELDS = tuple(COUNTERS)
FIELDS = (*GAUGES, *COUNTER_FIELDS)
_XID = list(COUNTERS.values()).index("xid_last")
_COUNTER = {name: place for place, name in enumerate(COUNTERS.values())}
IDLE, BUSY, STALLED = 0, 1, 2
# utilisation %, power W, degrees above idle, clock MHz, of an H100 under each load
_LOADS = np.array([[0, 95, 0, 345], [97, 610, 27, 1755], [100, 290, 14, 1980]], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class CounterChanges:
    """Changes of the counters as arrays in time order: what to add, what to set (the last Xid), what to reset."""

    add_ms: NDArray[np.int64]
    add_at: NDArray[np.int64]  # flat index of (node, gpu, counter)
    add: Floats
    reset_ms: NDArray[np.int64]
    reset_node: NDArray[np.int64]
    xid_ms: NDArray[np.int64]
    xid_at: NDArray[np.int64]
    xid: Floats


def counter_changes(cluster: SimulatedCluster) -> CounterChanges:
    """The counter changes of a cluster's trace."""
    trace, width = cluster.trace, len(COUNTER_FIELDS)
    xids = [(k.time_ms, (k.node * GPUS + k.xid[0]) * width + _XID, k.xid[1]) for k in trace.kernel if k.xid]
    counts = [(c.time_ms, (c.node * GPUS + c.gpu) * width + _COUNTER[c.counter], c.amount) for c in trace.counts]

    def column(rows: list[Any], place: int, kind: Any) -> Any:
        return np.array([row[place] for row in rows], dtype=kind)

    return CounterChanges(
        column(counts, 0, np.int64),
        column(counts, 1, np.int64),
        column(counts, 2, np.float32),
        column(trace.resets, 0, np.int64),
        column(trace.resets, 1, np.int64),
        column(xids, 0, np.int64),
        column(xids, 1, np.int64),
        column(xids, 2, np.float32),
    )


def advance(state: Floats, changes: CounterChanges, since_ms: int, until_ms: int) -> None:
    """Bring counters (nodes, GPUs, counters) from one moment to another, in place; exact to the hour's resets."""
    flat = state.reshape(-1)
    resets = _between(changes.reset_ms, since_ms, until_ms)
    last = np.full(state.shape[0], -1, dtype=np.int64)
    last[changes.reset_node[resets]] = changes.reset_ms[resets]
    state[last >= 0] = 0.0
    per_node = state.shape[1] * state.shape[2]
    adds = _between(changes.add_ms, since_ms, until_ms)
    at, fresh = changes.add_at[adds], changes.add_ms[adds] > last[changes.add_at[adds] // per_node]
    np.add.at(flat, at[fresh], changes.add[adds][fresh])
    xids = _between(changes.xid_ms, since_ms, until_ms)
    at, fresh = changes.xid_at[xids], changes.xid_ms[xids] > last[changes.xid_at[xids] // per_node]
    flat[at[fresh]] = changes.xid[xids][fresh]


def _between(times: NDArray[np.int64], since_ms: int, until_ms: int) -> slice:
    """The slice of a sorted column with since < time <= until."""
    low, high = np.searchsorted(times, (since_ms, until_ms), side="right")
    return slice(int(low), int(high))


def loads(cluster: SimulatedCluster, moment_ms: int) -> NDArray[np.int64]:
    """Each node's load at a moment: IDLE, BUSY or STALLED (waiting in a collective that will never end)."""
    load = np.zeros(cluster.layout.nodes, dtype=np.int64)
    for run in cluster.runs:
        for attempt in run.attempts:
            if attempt.first_ms <= moment_ms < attempt.end_ms:
                hung = attempt.fault is not None and moment_ms >= attempt.fault.fault_ms
                load[list(attempt.nodes)] = STALLED if hung else BUSY
    return load


def present(cluster: SimulatedCluster, moment_ms: int) -> NDArray[np.bool_]:
    """Which GPUs (nodes, GPUs) can be sampled at a moment."""
    here = np.repeat((np.array(cluster.layout.since_ms) <= moment_ms)[:, None], GPUS, axis=1)
    for gap in cluster.trace.gaps:
        if gap.start_ms <= moment_ms < gap.end_ms:
            here[gap.node, slice(None) if gap.gpu is None else gap.gpu] = False
    return here


def gauges(cluster: SimulatedCluster, moment_ms: int) -> Floats:
    """The gauges (nodes, GPUs, gauge) in DCGM's units at a moment; the same for the same cluster and moment."""
    nodes = cluster.layout.nodes
    rng = np.random.default_rng([cluster.settings.seed, 77, moment_ms // 1000])
    own = np.random.default_rng([cluster.settings.seed, 78])
    place = own.normal(0, 2.0, (nodes, 1)) + own.normal(0, 1.8, (nodes, GPUS))
    efficiency = own.normal(1.0, 0.02, (nodes, GPUS))
    util, power, warmth, clock = (_LOADS[loads(cluster, moment_ms), i][:, None] for i in range(4))
    day = moment_ms / DAY_MS
    ambient = 31.0 + 1.5 * np.sin(2 * np.pi * (day - 0.35)) + 1.5 * np.sin(2 * np.pi * day / 75.0)
    temp = ambient + warmth + place + _heat(cluster, moment_ms) + rng.normal(0, 1.2, (nodes, GPUS))
    out = np.empty((nodes, GPUS, len(GAUGES)), dtype=np.float32)
    out[..., 0] = np.round(temp)
    out[..., 1] = np.round(temp + 8.0 + rng.normal(0, 1.0, (nodes, GPUS)))
    swing = np.where(power > 500, 28.0, 4.0)
    out[..., 2] = np.round(np.clip(power * efficiency + rng.normal(0, 1.0, (nodes, GPUS)) * swing, 60, 720))
    out[..., 3] = np.where(util > 0, np.clip(np.round(util + rng.normal(0, 1.5, (nodes, GPUS))), 0, 100), 0)
    out[..., 4] = clock - 15.0 * np.round(np.clip(temp - 82.0, 0, None))
    return out


def _heat(cluster: SimulatedCluster, moment_ms: int) -> NDArray[np.float64]:
    warm = np.zeros((cluster.layout.nodes, GPUS))
    for heat in cluster.trace.heat:
        if heat.start_ms <= moment_ms < heat.end_ms:
            share = (moment_ms - heat.start_ms) / max(heat.end_ms - heat.start_ms, 1)
            warm[heat.node, slice(None) if heat.gpu is None else heat.gpu] += heat.rise_c * min(1.0, 0.3 + share)
    return warm


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every GPU at one moment: `values` (nodes, GPUs, FIELDS), `present` (nodes, GPUs)."""

    time_ms: int
    values: Floats
    present: NDArray[np.bool_]


def snapshots(cluster: SimulatedCluster, since_ms: int, until_ms: int, step_ms: int = HOUR_MS) -> Iterator[Snapshot]:
    """Snapshots at since, since + step, ... up to and without `until`."""
    changes = counter_changes(cluster)
    state = np.zeros((cluster.layout.nodes, GPUS, len(COUNTER_FIELDS)), dtype=np.float32)
    before = -1
    for moment in range(since_ms, until_ms, step_ms):
        advance(state, changes, before, moment)
        before = moment
        values = np.concatenate([gauges(cluster, moment), state], axis=2)
        yield Snapshot(moment, values, present(cluster, moment))

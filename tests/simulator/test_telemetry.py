"""Telemetry: gauges follow the job, counters follow the trace, what is gone has no row."""

import numpy as np
import pytest

from simulator.output.telemetry import (
    BUSY,
    COUNTER_FIELDS,
    FIELDS,
    IDLE,
    STALLED,
    advance,
    counter_changes,
    gauges,
    loads,
    present,
    snapshots,
)
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS, GPUS, HOUR_MS
from store.records.telemetry import COUNTERS

SBE = list(COUNTERS.values()).index("ecc_sbe")


def zero(cluster: SimulatedCluster) -> np.ndarray:
    """Counters at the beginning."""
    return np.zeros((cluster.layout.nodes, GPUS, len(COUNTER_FIELDS)), dtype=np.float32)


def test_counters_sum_up_what_the_trace_counts(small: SimulatedCluster) -> None:
    """Since the node's last reset."""
    moment = 15 * DAY_MS
    state = zero(small)
    advance(state, counter_changes(small), -1, moment)
    expected = zero(small)[..., SBE]
    last = dict.fromkeys(range(small.layout.nodes), -1)
    last.update({node: time for time, node in small.trace.resets if time <= moment})
    for count in small.trace.counts:
        if count.counter == "ecc_sbe" and last[count.node] < count.time_ms <= moment:
            expected[count.node, count.gpu] += count.amount
    assert (state[..., SBE] == expected).all()
    assert expected.sum() > 0


def test_counters_do_not_depend_on_the_steps(small: SimulatedCluster) -> None:
    """In one go or hour by hour."""
    once, stepwise, changes = zero(small), zero(small), counter_changes(small)
    advance(once, changes, -1, 8 * DAY_MS)
    before = -1
    for moment in range(0, 8 * DAY_MS + 1, 7 * HOUR_MS):
        advance(stepwise, changes, before, moment)
        before = moment
    advance(stepwise, changes, before, 8 * DAY_MS)
    assert (once == stepwise).all()


def test_the_last_xid_stays(small: SimulatedCluster) -> None:
    """A gauge that nobody clears but a reset."""
    resets = {node for _, node in small.trace.resets}
    line = next(k for k in small.trace.kernel if k.xid and k.node not in resets)
    assert line.xid is not None
    state = zero(small)
    advance(state, counter_changes(small), -1, line.time_ms)
    assert state[line.node, line.xid[0], -1] == line.xid[1]


def test_loads_follow_the_job(small: SimulatedCluster) -> None:
    """Busy while it iterates, stalled after the fault, idle before and beside it."""
    attempt = next(a for run in small.runs for a in run.attempts if a.fault is not None)
    assert attempt.fault is not None
    nodes = list(attempt.nodes)
    assert (loads(small, attempt.first_ms - 1)[nodes] == IDLE).all()
    assert (loads(small, attempt.first_ms)[nodes] == BUSY).all()
    assert (loads(small, attempt.fault.fault_ms)[nodes] == STALLED).all()
    spare = [node for node in range(small.layout.nodes) if node not in nodes]
    assert (loads(small, attempt.first_ms)[spare] == IDLE).all()


def test_a_busy_gpu_draws_more_and_is_warmer(small: SimulatedCluster) -> None:
    """Job-induced power swings."""
    attempt = next(a for run in small.runs for a in run.attempts if a.end_ms - a.first_ms > 2 * HOUR_MS)
    busy, idle = (gauges(small, moment)[list(attempt.nodes)] for moment in (attempt.first_ms + HOUR_MS, HOUR_MS))
    assert busy[..., 0].mean() > idle[..., 0].mean() + 15
    assert busy[..., 2].mean() > 500 > 150 > idle[..., 2].mean()
    assert busy[..., 3].min() > 85
    assert idle[..., 3].max() == 0


def test_gauges_are_the_same_for_the_same_moment(small: SimulatedCluster) -> None:
    """A replay shows what the archive holds."""
    assert (gauges(small, 5 * HOUR_MS) == gauges(small, 5 * HOUR_MS)).all()
    assert (gauges(small, 5 * HOUR_MS) != gauges(small, 6 * HOUR_MS)).any()


def test_heat_shows_in_the_temperature(large: SimulatedCluster) -> None:
    """At the end of the ramp, on its GPU or on all."""
    heat = max((h for h in large.trace.heat if h.gpu is not None), key=lambda h: h.rise_c)
    at = heat.end_ms - 1
    others = [gpu for gpu in range(GPUS) if gpu != heat.gpu]
    values = gauges(large, at)[heat.node, :, 0]
    assert heat.gpu is not None
    assert values[heat.gpu] > values[others].mean() + 4


@pytest.mark.parametrize("whole", [True, False])
def test_a_gap_has_no_sample(small: SimulatedCluster, whole: bool) -> None:
    """Of one GPU or of the whole node; before and after there are samples."""
    gap = next(g for g in small.trace.gaps if (g.gpu is None) == whole)
    here = present(small, gap.start_ms)[gap.node]
    assert not (here.any() if whole else here[gap.gpu])


def test_snapshots_have_every_field_at_every_hour(small: SimulatedCluster) -> None:
    """In order, without a missing value where a GPU is present."""
    found = list(snapshots(small, 0, DAY_MS))
    assert [snapshot.time_ms for snapshot in found] == list(range(0, DAY_MS, HOUR_MS))
    for snapshot in found:
        assert snapshot.values.shape == (small.layout.nodes, GPUS, len(FIELDS))
        assert np.isfinite(snapshot.values[snapshot.present]).all()

"""The cluster as a whole: the same for the same seed, and without stories that contradict each other."""

from dataclasses import replace

import pytest

from simulator.simulation import SimulatedCluster, simulate
from simulator.site import SimulationSettings, leaf_of


def test_the_same_settings_give_the_same_cluster(small: SimulatedCluster) -> None:
    """Traces, failures and runs."""
    again = simulate(small.settings)
    assert again.trace == small.trace
    assert again.failures == small.failures
    assert again.runs == small.runs
    assert again.accounts == small.accounts


def test_another_seed_gives_another_cluster(small: SimulatedCluster) -> None:
    """Nothing is fixed."""
    assert simulate(replace(small.settings, seed=4)).trace != small.trace


@pytest.mark.parametrize(("nodes", "days"), [(8, 2), (9, 3), (33, 5), (130, 4)])
def test_odd_sizes_are_simulated(nodes: int, days: int) -> None:
    """From the smallest on; every run's account sums up."""
    cluster = simulate(SimulationSettings(nodes, days, 11, rate_per_1000_node_days=50.0))
    assert cluster.layout.nodes == nodes
    assert all(sum(a.buckets_ms.values()) == a.wall_ms for a in cluster.accounts)


def test_a_port_is_down_once_at_a_time(small: SimulatedCluster) -> None:
    """Losses of one node do not overlap."""
    until: dict[int, int] = {}
    for loss in small.trace.links:
        assert loss.down_ms > until.get(loss.node, -1)
        assert loss.up_ms > loss.down_ms
        until[loss.node] = loss.up_ms


def test_nothing_else_looks_like_the_fault_between_the_last_line_and_the_fault(small: SimulatedCluster) -> None:
    """The truth names one fault of an attempt; the logs must not offer an earlier one."""
    checked = 0
    for attempt in (attempt for run in small.runs for attempt in run.attempts):
        if attempt.fault is None:
            continue
        low, high = attempt.last_line_ms, attempt.fault.fault_ms
        for line in small.trace.kernel:
            assert not (line.confounds and low < line.time_ms < high and line.node in attempt.nodes)
        for loss in small.trace.links:
            assert not (low < loss.down_ms < high and loss.node in attempt.nodes)
        checked += 1
    assert checked > 5


def test_the_fault_of_every_broken_attempt_leaves_a_trace_at_its_moment(small: SimulatedCluster) -> None:
    """An Xid in the node's log or a lost port; software and storage tell of themselves in the training log."""
    for fault in (a.fault for run in small.runs for a in run.attempts if a.fault is not None):
        if fault.kind.name in ("software", "storage"):
            continue
        lines = [k for k in small.trace.kernel if k.time_ms == fault.fault_ms and k.node == fault.node and k.confounds]
        losses = [
            loss
            for loss in small.trace.links
            if loss.down_ms == fault.fault_ms and leaf_of(loss.node) == leaf_of(fault.node)
        ]
        assert lines or losses


def test_planned_and_unplanned_times_do_not_overlap(small: SimulatedCluster) -> None:
    """Nobody plans work on a node that is broken."""
    for drain in small.drains:
        assert drain.start_ms < drain.end_ms
        for failure in small.outages:
            if failure.node == drain.node:
                assert failure.end_ms <= drain.start_ms or drain.end_ms <= failure.fault_ms


def test_a_leaf_failure_cuts_off_its_hosts_alone(large: SimulatedCluster) -> None:
    """All at the same moment, and no node is called broken for it."""
    leaf = next(failure for failure in large.failures if failure.leaf is not None)
    cut = {loss.node for loss in large.trace.links if loss.down_ms == leaf.fault_ms}
    assert len(cut) >= 12
    assert {leaf_of(node) for node in cut} == {leaf.leaf}
    assert leaf not in large.outages


def test_decoys_outnumber_true_precursors(large: SimulatedCluster) -> None:
    """FIELD D7: a heavy false base: most nodes with single-bit errors do not fail for it."""
    failing = {failure.node for failure in large.outages if failure.kind.name == "hbm_ecc" and failure.visible}
    noisy = {count.node for count in large.trace.counts if count.counter == "ecc_sbe"}
    assert len(noisy - failing) > 3 * len(failing)


def test_the_kernel_logs_stay_small(large: SimulatedCluster) -> None:
    """Order of a hundred thousand lines at most, for four hundred nodes and four months."""
    assert 10_000 < len(large.trace.kernel) < 100_000

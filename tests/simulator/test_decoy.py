"""Decoys: there are enough of each, and only where a node is well."""

from collections import Counter

import numpy as np
import pytest

from simulator.faults.decoy import DecoyContext, leave_decoys
from simulator.faults.fault import PlannedDrain
from simulator.faults.hazard import Availability
from simulator.faults.trace import Trace
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS, GPUS


@pytest.fixture(scope="module")
def decoys(large: SimulatedCluster) -> Trace:
    """Decoys alone, around the failures of the large cluster."""
    availability = Availability(large.layout, large.outages)
    for drain in large.drains:
        availability.add(drain)
    trace = Trace()
    rng = np.random.default_rng(7)
    leave_decoys(
        DecoyContext(
            large.settings, large.layout, large.parameters, availability, rng, trace, large.hazard.rate.mean(axis=0)
        )
    )
    trace.sort()
    return trace


def test_about_a_twentieth_of_the_gpus_shows_single_bit_errors(decoys: Trace, large: SimulatedCluster) -> None:
    """FIELD D5: about 5 %; one-off counts come on top."""
    counts = Counter((c.node, c.gpu) for c in decoys.counts if c.counter == "ecc_sbe")
    active = sum(number >= 5 for number in counts.values())
    assert 0.02 < active / (large.layout.nodes * GPUS) < 0.08


def test_applications_fault_in_bursts_over_a_node(decoys: Trace) -> None:
    """FIELD A1: most bursts hit all eight GPUs within a minute."""
    lines = [line for line in decoys.kernel if line.xid and line.xid[1] in (13, 31, 43)]
    assert len(lines) > 500
    minutes = Counter((line.node, line.time_ms // 120_000) for line in lines)
    assert np.mean([number >= 4 for number in minutes.values()]) > 0.4


def test_application_faults_are_none_of_the_machine(decoys: Trace) -> None:
    """They confound no ledger."""
    for line in decoys.kernel:
        if line.xid and line.xid[1] in (13, 31, 43, 45, 63, 92):
            assert not line.confounds


def test_a_few_links_flap_most(decoys: Trace, large: SimulatedCluster) -> None:
    """FIELD D4: chronic flappers, 0.5-2 % of links."""
    flaps = sorted(Counter(loss.node for loss in decoys.links).values(), reverse=True)
    top = round(0.02 * large.layout.nodes)
    assert sum(flaps[:top]) > 0.2 * sum(flaps)
    assert all(loss.up_ms - loss.down_ms <= 15_000 and not loss.root for loss in decoys.links)


def test_every_kind_of_decoy_is_there(decoys: Trace) -> None:
    """Counters, heat, gaps of nodes and of GPUs, remaps, retries, noise."""
    assert {c.counter for c in decoys.counts} == {
        "ecc_sbe",
        "pcie_replay",
        "nvlink_crc",
        "nvlink_replay",
        "thermal_violation",
        "row_remap_correctable",
    }
    assert {heat.gpu is None for heat in decoys.heat} == {True, False}
    assert {gap.gpu is None for gap in decoys.gaps} == {True, False}
    assert {63, 74} <= {line.xid[1] for line in decoys.kernel if line.xid}
    assert any(line.xid is None and "NVRM" not in line.text and "SXid" not in line.text for line in decoys.kernel)


def test_a_node_that_is_out_gives_no_decoy(decoys: Trace, large: SimulatedCluster) -> None:
    """Its log is still, its port is down already."""
    availability = Availability(large.layout, large.outages)
    for loss in decoys.links:
        assert availability.usable(loss.node, loss.down_ms)
    long_ones = [failure for failure in large.outages if failure.tier == "board"]
    for failure in long_ones[:20]:
        inside = (failure.fault_ms + 300_000, failure.end_ms)
        xids = [
            k for k in decoys.kernel if k.node == failure.node and inside[0] < k.time_ms < inside[1] and k.confounds
        ]
        assert not xids


def test_availability_knows_drains_and_newcomers(large: SimulatedCluster) -> None:
    """Not usable while drained, not before it joins; the next return is a whole second later."""
    availability = Availability(large.layout, [])
    availability.add(PlannedDrain(3, 5 * DAY_MS, 6 * DAY_MS, "maintenance", "ops"))
    assert availability.usable(3, 5 * DAY_MS - 1)
    assert not availability.usable(3, 5 * DAY_MS)
    assert availability.usable(3, 6 * DAY_MS)
    assert not availability.free(3, 4 * DAY_MS, 5 * DAY_MS + 1)
    assert availability.free(3, 6 * DAY_MS, 7 * DAY_MS)
    late = next(node for node, since in enumerate(large.layout.since_ms) if since)
    assert not availability.usable(late, large.layout.since_ms[late] - 1)
    assert not availability.free(late, 0, DAY_MS)
    assert availability.next_return_ms(5 * DAY_MS) <= 6 * DAY_MS + 60_000
    assert [drain.node for drain in availability.all_drains()] == [3]

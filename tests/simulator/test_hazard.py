"""How often nodes fail, how unevenly, and how much of it can be seen coming."""

from collections import Counter

import numpy as np
import pytest

from simulator.faults.fault import CLASSES, FAULT_CLASSES, NodeFailure
from simulator.faults.hazard import lead_ms, repair_ms
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import DAY_MS, HOUR_MS, SimulationSettings


def node_days(cluster: SimulatedCluster) -> float:
    """The cluster's size."""
    return float(cluster.layout.nodes * cluster.settings.days)


def test_the_rate_is_near_the_one_asked_for(large: SimulatedCluster) -> None:
    """FIELD D7: 3.8 per 1000 node-days, and clumps."""
    assert 2.6 < len(large.outages) / node_days(large) * 1000 < 5.2


def test_a_higher_rate_gives_more_outages() -> None:
    """The rate is the caller's."""
    low, high = (simulate(SimulationSettings(64, 30, 5, rate_per_1000_node_days=rate)) for rate in (2.0, 20.0))
    assert len(high.outages) > 2 * len(low.outages)


def test_a_few_nodes_have_most_of_the_failures(large: SimulatedCluster) -> None:
    """FIELD D6: the top 5 % of nodes hold 51-64 %."""
    counts = sorted(Counter(failure.node for failure in large.outages).values(), reverse=True)
    top = sum(counts[: large.layout.nodes // 20])
    assert 0.35 < top / len(large.outages) < 0.75


def test_a_fifth_to_two_fifths_of_the_failures_can_be_foreseen(large: SimulatedCluster) -> None:
    """FIELD D7: overall 20-40 % truly predictable."""
    assert 0.2 <= np.mean([failure.visible for failure in large.outages]) <= 0.4


def test_the_classes_visibility_averages_within_the_bounds() -> None:
    """By design, not by luck of the seed."""
    total = sum(kind.per_mgpuh for kind in FAULT_CLASSES)
    assert 0.2 <= sum(kind.per_mgpuh * kind.visible for kind in FAULT_CLASSES) / total <= 0.4


def test_every_class_occurs(large: SimulatedCluster) -> None:
    """Over four hundred nodes and four months."""
    assert {failure.kind.name for failure in large.outages} == {kind.name for kind in FAULT_CLASSES}


def test_memory_fails_most_often(large: SimulatedCluster) -> None:
    """FIELD D2: HBM3 leads what is not lumped together."""
    assert Counter(failure.kind.name for failure in large.outages).most_common(1)[0][0] in ("hbm_ecc", "nvlink")


def test_a_node_fails_only_while_it_is_in_service(large: SimulatedCluster) -> None:
    """Never while it is out, never before it joined."""
    last: dict[int, NodeFailure] = {}
    for failure in sorted(large.outages, key=lambda f: f.fault_ms):
        assert failure.fault_ms >= large.layout.since_ms[failure.node]
        if failure.node in last:
            assert failure.fault_ms >= last[failure.node].end_ms - HOUR_MS
        last[failure.node] = failure


def test_an_outage_begins_after_its_fault_and_after_its_warning(large: SimulatedCluster) -> None:
    """The device breaks, then Slurm learns of it."""
    for failure in large.outages:
        assert failure.warning_ms <= failure.fault_ms < failure.start_ms < failure.end_ms
        assert failure.start_ms % 1000 == 0
        assert failure.visible == (failure.warning_ms < failure.fault_ms)


@pytest.mark.parametrize(("tier", "low_h", "high_h"), [("reboot", 1, 4), ("reimage", 4, 24), ("board", 24, 72)])
def test_repairs_stay_within_their_tier(tier: str, low_h: int, high_h: int) -> None:
    """FIELD D6."""
    rng = np.random.default_rng(0)
    lengths = [repair_ms(tier, rng) for _ in range(200)]
    assert low_h * HOUR_MS <= min(lengths) <= max(lengths) <= high_h * HOUR_MS
    assert all(length % 1000 == 0 for length in lengths)


def test_leads_are_hours_to_weeks() -> None:
    """FIELD D5: never above three weeks; the median of memory is days."""
    rng = np.random.default_rng(0)
    leads = sorted(lead_ms(CLASSES["hbm_ecc"], rng) for _ in range(500))
    assert leads[-1] <= 21 * DAY_MS
    assert DAY_MS < leads[250] < 6 * DAY_MS


def test_the_driver_shock_raises_the_hazard(large: SimulatedCluster) -> None:
    """On the day of the release the mean hazard jumps (FIELD D7)."""
    day = large.hazard.shock_day
    assert large.hazard.rate[day].mean() > 1.2 * large.hazard.rate[day - 1].mean()


def test_new_nodes_fail_more_often() -> None:
    """FIELD D7: Weibull with shape 0.7 in the first thirty days."""
    cluster = simulate(SimulationSettings(200, 40, 2))
    node = next(n for n, since in enumerate(cluster.layout.since_ms) if 0 < since < 8 * DAY_MS)
    joined = cluster.layout.since_ms[node] // DAY_MS
    assert cluster.hazard.rate[joined, node] > 1.5 * cluster.hazard.rate[joined + 6, node]

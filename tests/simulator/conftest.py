"""Two simulated clusters that the tests of this folder share; neither is changed by a test."""

import pytest

from simulator.simulation import SimulatedCluster, simulate
from simulator.site import SimulationSettings


@pytest.fixture(scope="session")
def small() -> SimulatedCluster:
    """24 nodes over 21 days with many failures: quick, and with a bit of everything."""
    return simulate(SimulationSettings(nodes=24, days=21, seed=3, rate_per_1000_node_days=20.0))


@pytest.fixture(scope="session")
def large() -> SimulatedCluster:
    """400 nodes over 120 days: enough failures to speak of shares."""
    return simulate(SimulationSettings(nodes=400, days=120, seed=1))

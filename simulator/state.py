"""A simulated cluster: what failed, what was seen of it, what the training runs did, and the hidden state behind it."""

from dataclasses import dataclass

from simulator.faults.fault import NodeFailure, PlannedDrain
from simulator.faults.hazard import Hazard
from simulator.faults.trace import Trace
from simulator.site import Parameters, SimulationSettings, SiteLayout
from simulator.training.accounting import RunAccount
from simulator.training.attempt import SimulatedRun


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """Everything of one simulated cluster. Times inside are ms from `settings.start`."""

    settings: SimulationSettings
    parameters: Parameters
    layout: SiteLayout
    hazard: Hazard
    failures: tuple[NodeFailure, ...]  # outages and job errors, in time order
    drains: tuple[PlannedDrain, ...]
    runs: tuple[SimulatedRun, ...]
    accounts: tuple[RunAccount, ...]
    trace: Trace
    roll_ms: int  # when the new driver is rolled out

    @property
    def outages(self) -> list[NodeFailure]:
        """The unplanned outages, in order of their starts."""
        found = [f for f in self.failures if f.outage and f.start_ms < self.settings.length_ms]
        return sorted(found, key=lambda f: (f.start_ms, f.node))

"""A simulated cluster: what failed, what was seen of it, what the training runs did, and the hidden state behind it."""

from dataclasses import dataclass

from simulator.accounting import Account
from simulator.attempt import Run
from simulator.fault import Drain, Failure
from simulator.hazard import Hazard
from simulator.layout import Layout
from simulator.parameters import Parameters
from simulator.settings import Settings
from simulator.trace import Trace


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything of one simulated cluster. Times inside are ms from `settings.start`."""

    settings: Settings
    parameters: Parameters
    layout: Layout
    hazard: Hazard
    failures: tuple[Failure, ...]  # outages and job errors, in time order
    drains: tuple[Drain, ...]
    runs: tuple[Run, ...]
    accounts: tuple[Account, ...]
    trace: Trace
    roll_ms: int  # when the new driver is rolled out

    @property
    def outages(self) -> list[Failure]:
        """The unplanned outages, in order of their starts."""
        found = [f for f in self.failures if f.outage and f.start_ms < self.settings.length_ms]
        return sorted(found, key=lambda f: (f.start_ms, f.node))

"""Which nodes can be used when: in service, not failed, not drained."""

from collections import defaultdict
from collections.abc import Iterable

from simulator.fault import Drain, Failure
from simulator.layout import Layout

# A node that comes back is checked before it takes work.
RETURN_MS = 60_000


class Availability:
    """The out-of-service times of every node; failures may be moved, drains added, while a run is simulated."""

    def __init__(self, layout: Layout, failures: Iterable[Failure]) -> None:
        """Index the failures that take a node out."""
        self.since_ms = layout.since_ms
        self.failures: dict[int, list[Failure]] = defaultdict(list)
        self.drains: dict[int, list[Drain]] = defaultdict(list)
        for failure in failures:
            if failure.outage:
                self.failures[failure.node].append(failure)

    def usable(self, node: int, moment_ms: int) -> bool:
        """Whether work can run on the node."""
        if moment_ms < self.since_ms[node]:
            return False
        if any(failure.out_at(moment_ms) for failure in self.failures[node]):
            return False
        return not any(drain.start_ms <= moment_ms < drain.end_ms for drain in self.drains[node])

    def free(self, node: int, start_ms: int, end_ms: int) -> bool:
        """Whether the node is in service, and nothing is wrong or planned with it, over a whole time."""
        if start_ms < self.since_ms[node]:
            return False
        if any(f.fault_ms < end_ms and start_ms < f.end_ms for f in self.failures[node]):
            return False
        return not any(drain.start_ms < end_ms and start_ms < drain.end_ms for drain in self.drains[node])

    def next_return_ms(self, moment_ms: int) -> int:
        """The next moment at which some node comes back or joins, in whole seconds."""
        ends = [f.end_ms for failures in self.failures.values() for f in failures if f.out_at(moment_ms)]
        ends += [d.end_ms for drains in self.drains.values() for d in drains if d.start_ms <= moment_ms < d.end_ms]
        ends += [since for since in self.since_ms if since > moment_ms]
        return -(-min(ends, default=moment_ms + 3_600_000) // 1000) * 1000 + RETURN_MS

    def add(self, drain: Drain) -> None:
        """Note a planned time out of service."""
        self.drains[drain.node].append(drain)

    def all_drains(self) -> list[Drain]:
        """Every planned time out of service, in time order."""
        return sorted((d for drains in self.drains.values() for d in drains), key=lambda d: (d.start_ms, d.node))

"""A scheduler that is read back, in memory: it does as it is told, loses answers, is away, and people reach into it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from schedulers.reconcile.actuator import Hold, JobOrder, Order, OrderReport, SchedulerAwayError


@dataclass
class Holding:
    """What it holds of each node is in `nodes`. `is_deaf`: it carries orders out, and its answer is lost."""

    name: str = "slurm"
    nodes: dict[str, Hold] = field(default_factory=dict)
    is_away: bool = False
    is_deaf: bool = False
    answers: dict[str, OrderReport] = field(default_factory=dict)  # by node: what is said instead of doing it
    jobs: dict[str, OrderReport] = field(default_factory=dict)  # by job
    got: list[Order] = field(default_factory=list)
    asked: list[JobOrder] = field(default_factory=list)
    observed: int = 0
    start: datetime | None = None
    asked_start: int = 0
    avoid_takes: bool = False
    before: Callable[[], None] = lambda: None  # called as orders come in, before they are carried out

    @classmethod
    def of(cls, *names: str, name: str = "slurm") -> "Holding":
        """With free nodes."""
        return cls(name, {node: Hold(node) for node in names})

    @property
    def address(self) -> str:
        """Nowhere."""
        return f"{self.name}.example"

    def started(self) -> datetime | None:
        """As the test says."""
        self.asked_start += 1
        return self.start

    def observe(self) -> Sequence[Hold]:
        """Every node."""
        if self.is_away:
            raise SchedulerAwayError(f"{self.name} does not answer")
        self.observed += 1
        return tuple(self.nodes.values())

    def carry_out(self, orders: Sequence[Order]) -> Sequence[OrderReport]:
        """As told, if nobody else holds the node."""
        self.got += orders
        self.before()
        if self.is_away:
            raise SchedulerAwayError(f"{self.name} does not answer")
        reports = [self._one(order) for order in orders]
        if self.is_deaf:
            raise SchedulerAwayError(f"{self.name} hung up")
        return reports

    def ask_jobs(self, orders: Sequence[JobOrder]) -> Sequence[OrderReport]:
        """As told."""
        self.asked += orders
        self.before()
        if self.is_away or self.is_deaf:
            raise SchedulerAwayError(f"{self.name} hung up")
        return [self.jobs.get(order.job, OrderReport(order.job, "done")) for order in orders]

    def close(self) -> None:
        """It holds nothing open."""

    def person(self, node: str, why: str | None) -> None:
        """Somebody holds a node for their own reason (or lets it go: None), whatever was there."""
        self.nodes[node] = Hold(node, foreign=why)

    def actions(self) -> list[str]:
        """What was ordered, in order."""
        return [f"{order.action} {order.node}" for order in self.got]

    def held(self, node: str) -> str:
        """What it holds a node for: `cordon h-a`, or nothing."""
        hold = self.nodes[node]
        return "" if hold.action is None else f"{hold.action} {hold.hint}"

    def _one(self, order: Order) -> OrderReport:
        if order.node in self.answers:
            return self.answers[order.node]
        hold = self.nodes.get(order.node)
        if hold is None:
            return OrderReport(order.node, "absent")
        if order.action == "release":
            if hold.hint == order.hint:
                self.nodes[order.node] = replace(hold, action=None, hint=None)
            return OrderReport(order.node, "done")
        if hold.foreign is not None:
            return OrderReport(order.node, "foreign", hold.foreign)
        self.nodes[order.node] = replace(hold, action=order.action, hint=order.hint)
        return OrderReport(order.node, "done")

"""A scheduler in memory that does what an `Actuator` promises: for properties over many runs.

The real programs are tested in `slurm/` and `kubernetes/`. It goes by the contract alone: an order touches a node only
where nobody else holds it, a release takes off our mark under this hint's id and no other. It notes what it was asked
that no faithful program asks: that is what the tests look at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schedulers.reconcile.actuator import Hold, JobOrder, Order, OrderReport, SchedulerAwayError
from store.records.hint import HintAction


class KilledError(Exception):
    """The server ends here, in the middle of its work."""


@dataclass
class Mark:
    """What lies on a node: ours (action and hint's id), another's (words), both or nothing."""

    action: HintAction | None = None
    hint: str | None = None
    foreign: str | None = None
    is_opted_out: bool = False
    is_down: bool = False


@dataclass
class ModelScheduler:
    """`trouble` of the next calls: away (does not answer), lost (obeys half, the answer is lost), killed (the same,
    and the server dies), deaf (says done and does nothing), busy (every second node: try again)."""

    name: str
    marks: dict[str, Mark]
    address: str = "memory"
    trouble: str | None = None
    avoid_takes: bool = False
    seen: dict[str, Mark] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    after: Callable[[str, Mark], None] = lambda _node, _was: None  # called after each order that was obeyed

    looked: Callable[[], None] = lambda: None  # called at each look that is answered

    def started(self) -> None:
        """It forgets nothing."""

    def observe(self) -> Sequence[Hold]:
        """Every node, as it is."""
        if self.trouble == "away":
            raise SchedulerAwayError(f"{self.name} is away")
        self.looked()
        self.seen = {node: Mark(mark.action, mark.hint, mark.foreign) for node, mark in self.marks.items()}
        return [
            Hold(node, "idle", mark.action, mark.hint, mark.foreign, mark.is_opted_out, is_up=not mark.is_down)
            for node, mark in self.marks.items()
        ]

    def carry_out(self, orders: Sequence[Order]) -> Sequence[OrderReport]:
        """Do what is ordered, or half of it."""
        self._judge(orders)
        trouble, self.trouble = self.trouble, None if self.trouble in ("lost", "killed") else self.trouble
        if trouble == "away":
            raise SchedulerAwayError(f"{self.name} is away")
        obeyed = orders[: (len(orders) + 1) // 2] if trouble in ("lost", "killed") else orders
        reports = [self._one(place, order, trouble) for place, order in enumerate(obeyed)]
        if trouble == "lost":
            raise SchedulerAwayError("the answer was lost")
        if trouble == "killed":
            raise KilledError
        return reports

    def ask_jobs(self, orders: Sequence[JobOrder]) -> Sequence[OrderReport]:
        """No jobs here."""
        return [OrderReport(order.job, "absent") for order in orders]

    def close(self) -> None:
        """It holds nothing open."""

    def _one(self, place: int, order: Order, trouble: str | None) -> OrderReport:
        mark = self.marks.get(order.node)
        if mark is None:
            return OrderReport(order.node, "absent")
        if trouble == "busy" and place % 2:
            return OrderReport(order.node, "retry", "busy")
        if trouble == "deaf":
            return OrderReport(order.node, "done")
        if order.action == "release":
            if mark.hint == order.hint:
                mark.action = mark.hint = None
            return OrderReport(order.node, "done")
        if mark.foreign is not None and mark.hint != order.hint:
            return OrderReport(order.node, "foreign", mark.foreign)
        if mark.is_opted_out and mark.hint != order.hint:
            return OrderReport(order.node, "refused", "opted out")
        was = Mark(mark.action, mark.hint, mark.foreign)
        mark.action, mark.hint = order.action, order.hint
        self.after(order.node, was)
        return OrderReport(order.node, "done")

    def _judge(self, orders: Sequence[Order]) -> None:
        """What was asked against what the asker had been told a moment ago."""
        for order in orders:
            mark = self.seen.get(order.node, Mark())
            if order.action == "release" and mark.hint != order.hint:
                self.wrong.append(f"release of {order.node} for {order.hint}, which bears {mark}")
            if order.action != "release" and mark.foreign is not None:
                self.wrong.append(f"{order.action} of {order.node}, which another holds: {mark}")
            if order.action != "release" and mark.is_opted_out and mark.hint is None:
                self.wrong.append(f"{order.action} of {order.node}, which nobody may touch")
            if mark.hint is not None and mark.hint.startswith("orphan"):
                self.wrong.append(f"{order.action} of {order.node}, whose mark nobody knows")
        if len({order.node for order in orders}) < len(orders):
            self.wrong.append("two orders of one node at once")

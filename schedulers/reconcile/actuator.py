"""The protocol of a scheduler that is brought to a state and read back, as Slurm and Kubernetes are.

    for hold in actuator.observe(): ...            # what it holds of each node, and whose that is
    actuator.carry_out([Order("gpu-017", hint.id, "cordon", "foreshock: xid 79 on gpu 0", until)])

An order states where a node is to be, not what to do next. To repeat it changes nothing. So after a restart, an outage
or a lost answer the server observes and orders again (`schedulers/reconcile/plan.py`). A hold of others is never
touched. A receiver that cannot be read back is a `HintReceiver` (`schedulers/reconcile/delivery.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from store.records.hint import Evidence, HintAction

# done: carried out (observing will tell). foreign: another holds the node, nothing was touched. absent: no such node.
# refused: never with this order. retry: later, perhaps.
OrderResult: TypeAlias = Literal["done", "foreign", "absent", "refused", "retry"]


class SchedulerAwayError(ConnectionError):
    """The scheduler does not answer, or not in time; nothing is known of what it holds."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One node as a scheduler tells it."""

    node: str
    state: str = ""  # in the scheduler's own words
    action: HintAction | None = None  # the gravest thing that we hold it for; None: nothing of ours is on it
    hint: str | None = None  # the id that we left on it
    foreign: str | None = None  # who else keeps work off it, and why, in the scheduler's words
    is_opted_out: bool = False  # its label says that we must not touch it
    is_up: bool = True  # it responds, and is not down
    nvlink_domain: str | None = None  # where the scheduler's labels tell it


@dataclass(frozen=True, slots=True)
class Order:
    """What one node is to be brought to, be it more or less; `release` takes off what is ours under this hint's id.

    A node that bears our mark for another hint is taken over, in one step where that can be: the mark becomes this
    one's. (It is ordered only where that hint has ended.) Of a release, another hint's mark stays: that is `done`, too.
    """

    node: str
    hint: str
    action: HintAction
    reason: str  # begins `foreshock:`
    valid_until: datetime
    evidence: Evidence = field(default_factory=Evidence)


@dataclass(frozen=True, slots=True)
class JobOrder:
    """A request to a job that runs on a culprit: checkpoint, requeue, swap (`spare` instead of `node`)."""

    job: str
    hint: str
    action: HintAction
    node: str
    reason: str
    spare: str | None = None


@dataclass(frozen=True, slots=True)
class OrderReport:
    """What came of one order; `subject` is its node or job."""

    subject: str
    result: OrderResult
    detail: str = ""


class Actuator(Protocol):
    """One scheduler. Never raises for what it answers, but for SchedulerAwayError."""

    @property
    def name(self) -> str:
        """As the configuration names it."""

    @property
    def address(self) -> str:
        """Where it is, for messages."""

    @property
    def avoid_takes(self) -> bool:
        """Whether its way to carry out an `avoid` takes the node out of use for new work."""

    def started(self) -> datetime | None:
        """When it was started, by our clock, where it may have lost then what it was told shortly before; else None.

        Raises:
            SchedulerAwayError: it cannot be asked.
        """

    def observe(self) -> Sequence[Hold]:
        """Every node that it knows.

        Raises:
            SchedulerAwayError: it cannot be asked.
        """

    def carry_out(self, orders: Sequence[Order]) -> Sequence[OrderReport]:
        """Bring nodes to where they are to be, in few calls; one report an order, in any order.

        Raises:
            SchedulerAwayError: it cannot be asked; some orders may have been carried out.
        """

    def ask_jobs(self, orders: Sequence[JobOrder]) -> Sequence[OrderReport]:
        """Ask something of running jobs.

        Raises:
            SchedulerAwayError: as above.
        """

    def close(self) -> None:
        """Nothing more will be asked: let go of what keeps others from taking over. Raises nothing."""

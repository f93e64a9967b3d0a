"""What every scheduler is: takes one delivery, says what came of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from store.outbox import Delivery


@dataclass(frozen=True, slots=True)
class Outcome:
    """delivered; retry (not before `retry_after_s`); refused (never again); gone (leave the receiver alone).

    `status` is that of HTTP. `slow`: what else the receiver is owed waits, too: it is away or has too much to do.
    """

    result: Literal["delivered", "retry", "refused", "gone"]
    detail: str
    retry_after_s: float = 0.0
    status: int | None = None
    slow: bool = False


class Scheduler(Protocol):
    """One receiver of hints."""

    @property
    def name(self) -> str:
        """As the configuration names it; deliveries are kept apart by it."""

    @property
    def address(self) -> str:
        """Where it is; one that has said it is gone is tried again once this changes."""

    @property
    def send_shadow(self) -> bool:
        """Whether it wants to see shadow hints, as an observer."""

    @property
    def is_notice(self) -> bool:
        """Whether people read it: that it was delivered does not make a hint `sent`."""

    def wants(self, action: str, state: str) -> bool:
        """Whether it is to be told of hints of an action while they are in a state: approved, proposed, shadow."""

    def send(self, delivery: Delivery, now: datetime) -> Outcome:
        """Hand one delivery over; `now` is the real time. Never raises for what the receiver does."""

"""What every scheduler is: takes one delivery, says what came of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from store.outbox import Delivery


@dataclass(frozen=True, slots=True)
class Outcome:
    """delivered; retry (not before `retry_after_s`); refused (never again); gone (leave the receiver alone)."""

    result: Literal["delivered", "retry", "refused", "gone"]
    detail: str
    retry_after_s: float = 0.0


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

    def send(self, delivery: Delivery, now: datetime) -> Outcome:
        """Hand one delivery over; `now` is the real time. Never raises for what the receiver does."""

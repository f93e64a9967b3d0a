"""Receivers of hints that do as they are told, for the dispatcher's tests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from schedulers.reconcile.delivery import DeliveryOutcome
from schedulers.reconcile.dispatch import Dispatch, run_dispatch
from store.database.connections import writing
from store.hints.hint_log import audit_page, read_hint, save_hint
from store.hints.outbox import Delivery, deliveries_of
from store.records.hint import Hint

from .cluster import NOW

DELIVERED = DeliveryOutcome("delivered", "HTTP 204")
BUSY = DeliveryOutcome("retry", "HTTP 503")


@dataclass
class Scripted:
    """A scheduler that answers by its script, then takes everything; `meanwhile` runs while it is being told."""

    name: str = "ops"
    address: str = "http://x"
    send_shadow: bool = False
    is_notice: bool = False
    states: tuple[str, ...] = ("approved",)
    answers: list[DeliveryOutcome] = field(default_factory=list)
    got: list[Delivery] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None

    def wants(self, _action: str, state: str) -> bool:
        """Whether it is told of a hint in a state."""
        return self.send_shadow if state == "shadow" else state in self.states

    def send(self, delivery: Delivery, _now: datetime) -> DeliveryOutcome:
        """Take a delivery."""
        self.got.append(delivery)
        if self.meanwhile is not None:
            during, self.meanwhile = self.meanwhile, None
            during()
        return self.answers.pop(0) if self.answers else DELIVERED

    def types(self) -> list[str]:
        """The types of what it got."""
        return [delivery.payload["type"] for delivery in self.got]

    def actions(self) -> list[str]:
        """What it was asked, in order."""
        return [delivery.payload["data"]["action"] for delivery in self.got]


def put(engine: sa.Engine, *hints: Hint) -> None:
    """Store hints, as the policy does."""
    with writing(engine).begin() as connection:
        for one in hints:
            save_hint(connection, one, NOW, {})


def turn(engine: sa.Engine, *told: Scripted, now: datetime = NOW, mode: Any = "act") -> list[str]:
    """One turn of the dispatcher, without jitter; returns the outcomes."""
    means = Dispatch(engine, told, mode, jitter=lambda: 0.0, wall=lambda: now)
    return [outcome.result for outcome in run_dispatch(means, now, lambda: True)]


def state_of(engine: sa.Engine, ident: str = "h-a") -> str:
    """A hint's state."""
    with engine.connect() as connection:
        found = read_hint(connection, ident)
    assert found is not None
    return found.state


def rows_of(engine: sa.Engine, ident: str = "h-a") -> list[Delivery]:
    """A hint's deliveries."""
    with engine.connect() as connection:
        return deliveries_of(connection, ident)


def outcomes_of(engine: sa.Engine, ident: str = "h-a") -> list[str]:
    """What the audit says of a hint's deliveries, oldest first."""
    with engine.connect() as connection:
        entries = audit_page(connection, 1000, None, ident)
    return [entry["detail"]["outcome"] for entry in reversed(entries) if "outcome" in entry["detail"]]

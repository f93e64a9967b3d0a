"""The delivery log: every attempt to hand a delivery over, when, how long it took, and what came of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.outbox import Delivery, deliveries_of

_LOG = schema.deliveries
# Of one hint: ten attempts at each of a hundred deliveries.
MOST_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. `outcome`: delivered, retry, refused, gone; `status` of HTTP, None where no answer came."""

    delivery: str
    hint: str
    scheduler: str
    time: datetime
    outcome: str
    status: int | None
    duration_s: float
    detail: str


def log_attempt(connection: sa.Connection, attempt: Attempt) -> None:
    """Add an attempt; rows are never changed."""
    connection.execute(_LOG.insert().values(**asdict(attempt)))


def attempts_of(connection: sa.Connection, hint: str) -> list[Attempt]:
    """The last attempts at a hint's deliveries, the oldest first, at most MOST_ATTEMPTS."""
    return _newest(connection, sa.select(_LOG).where(_LOG.c.hint == hint), MOST_ATTEMPTS)


def newest_attempts(connection: sa.Connection, limit: int) -> list[Attempt]:
    """The last attempts of all, the oldest first."""
    return _newest(connection, sa.select(_LOG), limit)


def _newest(connection: sa.Connection, query: sa.Select[Any], limit: int) -> list[Attempt]:
    rows = connection.execute(query.order_by(_LOG.c.seq.desc()).limit(limit)).mappings().all()
    return [Attempt(**{name: row[name] for name in row if name != "seq"}) for row in reversed(rows)]


def delivery_history(connection: sa.Connection, hint: str) -> list[tuple[Delivery, Sequence[Attempt]]]:
    """A hint's deliveries, each with its attempts, oldest first."""
    attempts = attempts_of(connection, hint)
    return [
        (delivery, [one for one in attempts if one.delivery == delivery.id])
        for delivery in deliveries_of(connection, hint)
    ]

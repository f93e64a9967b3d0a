"""Deliveries that are owed to schedulers: one row per hint, action and receiver until it is delivered or has lapsed."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.tables import hint_tables
from store.tables.bulk_rows import insert_into, is_one_of

_OUTBOX = hint_tables.outbox


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row. `id` is the webhook-id: the same over all attempts, so that a receiver can drop repeats."""

    id: str
    hint: str
    scheduler: str
    payload: dict[str, Any]
    attempts: int
    due: datetime
    state: str = "owed"  # owed, delivered, failed, expired
    last_error: str | None = None


def queue_deliveries(connection: sa.Connection, deliveries: Sequence[Delivery]) -> None:
    """Note deliveries as owed; one that is there already is left as it is."""
    if not deliveries:
        return
    statement = insert_into(connection, _OUTBOX).on_conflict_do_nothing(index_elements=["id"])
    names = [column.name for column in _OUTBOX.columns]
    connection.execute(statement, [{name: getattr(delivery, name) for name in names} for delivery in deliveries])


def known_deliveries(connection: sa.Connection, idents: Iterable[str]) -> frozenset[str]:
    """Those of the webhook-ids that stand in the outbox, whatever came of them."""
    listed = list(idents)
    if not listed:
        return frozenset()
    return frozenset(connection.scalars(sa.select(_OUTBOX.c.id).where(is_one_of(connection, _OUTBOX.c.id, listed))))


def due_deliveries(connection: sa.Connection, now: datetime, limit: int) -> list[Delivery]:
    """What is owed and due, the longest due first."""
    query = sa.select(_OUTBOX).where(_OUTBOX.c.state == "owed", _OUTBOX.c.due <= now)
    rows = connection.execute(query.order_by(_OUTBOX.c.due, _OUTBOX.c.id).limit(limit)).mappings()
    return [Delivery(**row) for row in rows]


def save_attempt_result(connection: sa.Connection, delivery: Delivery) -> None:
    """Write what came of an attempt; what has been settled for good already, by another dispatcher, stays so."""
    values = {name: getattr(delivery, name) for name in ("attempts", "due", "state", "last_error")}
    owed = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.state == "owed")
    connection.execute(sa.update(_OUTBOX).where(*owed).values(**values))


def deliveries_of(connection: sa.Connection, hint: str) -> list[Delivery]:
    """A hint's deliveries, whatever came of them."""
    query = sa.select(_OUTBOX).where(_OUTBOX.c.hint == hint).order_by(_OUTBOX.c.due, _OUTBOX.c.id)
    return [Delivery(**row) for row in connection.execute(query).mappings()]


def deliveries_of_ended_hints(connection: sa.Connection, ended: Sequence[str], since: datetime) -> list[Delivery]:
    """What a receiver has taken, or may have, for hints that have ended and were valid until `since` or later.

    An attempt that failed may have been taken all the same: its answer was lost.
    """
    hints = hint_tables.hints
    query = (
        sa.select(_OUTBOX)
        .join(hints, hints.c.id == _OUTBOX.c.hint)
        .where(_OUTBOX.c.attempts > 0, hints.c.state.in_(ended), hints.c.valid_until >= since)
    )
    return [Delivery(**row) for row in connection.execute(query).mappings()]


def has_error(connection: sa.Connection, scheduler: str, error: str) -> bool:
    """Whether a delivery to a receiver has failed with exactly this error."""
    query = sa.select(_OUTBOX.c.id).where(
        _OUTBOX.c.state == "failed", _OUTBOX.c.scheduler == scheduler, _OUTBOX.c.last_error == error
    )
    return connection.execute(query.limit(1)).first() is not None


def postpone(connection: sa.Connection, scheduler: str, until: datetime) -> None:
    """Let all that a receiver is owed wait until a moment."""
    owed = (_OUTBOX.c.scheduler == scheduler, _OUTBOX.c.state == "owed", _OUTBOX.c.due < until)
    connection.execute(sa.update(_OUTBOX).where(*owed).values(due=until))


def read_delivery(connection: sa.Connection, ident: str) -> Delivery | None:
    """The delivery of a webhook-id."""
    row = connection.execute(sa.select(_OUTBOX).where(_OUTBOX.c.id == ident)).mappings().first()
    return None if row is None else Delivery(**row)


def requeue_delivery(connection: sa.Connection, delivery: Delivery, now: datetime) -> None:
    """Let a delivery be made once more, whatever came of it, and its receiver be tried though it said it was gone."""
    again = {"state": "owed", "due": now, "attempts": min(delivery.attempts, 1), "last_error": None}
    connection.execute(sa.update(_OUTBOX).where(_OUTBOX.c.id == delivery.id).values(**again))
    was_gone = (_OUTBOX.c.scheduler == delivery.scheduler, _OUTBOX.c.last_error.startswith("HTTP 410 from "))
    connection.execute(sa.update(_OUTBOX).where(*was_gone).values(last_error="HTTP 410, tried again since"))


# The delivery log: every attempt to hand a delivery over, when, how long it took, and what came of it.

_LOG = hint_tables.deliveries
# Of one hint: ten attempts at each of a hundred deliveries.
MOST_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One attempt. `outcome`: delivered, retry, refused, gone; `status` of HTTP, None where no answer came."""

    delivery: str
    hint: str
    scheduler: str
    time: datetime
    outcome: str
    status: int | None
    duration_s: float
    detail: str


def log_attempt(connection: sa.Connection, attempt: DeliveryAttempt) -> None:
    """Add an attempt; rows are never changed."""
    connection.execute(_LOG.insert().values(**asdict(attempt)))


def attempts_of(connection: sa.Connection, hint: str) -> list[DeliveryAttempt]:
    """The last attempts at a hint's deliveries, the oldest first, at most MOST_ATTEMPTS."""
    return _newest(connection, sa.select(_LOG).where(_LOG.c.hint == hint), MOST_ATTEMPTS)


def newest_attempts(connection: sa.Connection, limit: int) -> list[DeliveryAttempt]:
    """The last attempts of all, the oldest first."""
    return _newest(connection, sa.select(_LOG), limit)


def _newest(connection: sa.Connection, query: sa.Select[Any], limit: int) -> list[DeliveryAttempt]:
    rows = connection.execute(query.order_by(_LOG.c.seq.desc()).limit(limit)).mappings().all()
    return [DeliveryAttempt(**{name: row[name] for name in row if name != "seq"}) for row in reversed(rows)]


def delivery_history(connection: sa.Connection, hint: str) -> list[tuple[Delivery, Sequence[DeliveryAttempt]]]:
    """A hint's deliveries, each with its attempts, oldest first."""
    attempts = attempts_of(connection, hint)
    return [
        (delivery, [one for one in attempts if one.delivery == delivery.id])
        for delivery in deliveries_of(connection, hint)
    ]

"""Deliveries that are owed to schedulers: one row per hint, action and receiver until it is delivered or has lapsed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.bulk_rows import among

_OUTBOX = schema.outbox


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


def owe(connection: sa.Connection, deliveries: Sequence[Delivery]) -> None:
    """Note deliveries as owed; one that is there already is left as it is."""
    if not deliveries:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(_OUTBOX).on_conflict_do_nothing(index_elements=["id"])
    names = [column.name for column in _OUTBOX.columns]
    connection.execute(statement, [{name: getattr(delivery, name) for name in names} for delivery in deliveries])


def known_deliveries(connection: sa.Connection, idents: Iterable[str]) -> frozenset[str]:
    """Those of the webhook-ids that stand in the outbox, whatever came of them."""
    listed = list(idents)
    if not listed:
        return frozenset()
    return frozenset(connection.scalars(sa.select(_OUTBOX.c.id).where(among(connection, _OUTBOX.c.id, listed))))


def due_deliveries(connection: sa.Connection, now: datetime, limit: int) -> list[Delivery]:
    """What is owed and due, the longest due first."""
    query = sa.select(_OUTBOX).where(_OUTBOX.c.state == "owed", _OUTBOX.c.due <= now)
    rows = connection.execute(query.order_by(_OUTBOX.c.due, _OUTBOX.c.id).limit(limit)).mappings()
    return [Delivery(**row) for row in rows]


def settle(connection: sa.Connection, delivery: Delivery) -> None:
    """Write what came of an attempt; what has been settled for good already, by another dispatcher, stays so."""
    values = {name: getattr(delivery, name) for name in ("attempts", "due", "state", "last_error")}
    owed = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.state == "owed")
    connection.execute(sa.update(_OUTBOX).where(*owed).values(**values))


def deliveries_of(connection: sa.Connection, hint: str) -> list[Delivery]:
    """A hint's deliveries, whatever came of them."""
    query = sa.select(_OUTBOX).where(_OUTBOX.c.hint == hint).order_by(_OUTBOX.c.due, _OUTBOX.c.id)
    return [Delivery(**row) for row in connection.execute(query).mappings()]


def taken_of_ended(connection: sa.Connection, ended: Sequence[str], since: datetime) -> list[Delivery]:
    """What a receiver has taken, or may have, for hints that have ended and were valid until `since` or later.

    An attempt that failed may have been taken all the same: its answer was lost.
    """
    hints = schema.hints
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


def owe_again(connection: sa.Connection, delivery: Delivery, now: datetime) -> None:
    """Let a delivery be made once more, whatever came of it, and its receiver be tried though it said it was gone."""
    again = {"state": "owed", "due": now, "attempts": min(delivery.attempts, 1), "last_error": None}
    connection.execute(sa.update(_OUTBOX).where(_OUTBOX.c.id == delivery.id).values(**again))
    was_gone = (_OUTBOX.c.scheduler == delivery.scheduler, _OUTBOX.c.last_error.startswith("HTTP 410 from "))
    connection.execute(sa.update(_OUTBOX).where(*was_gone).values(last_error="HTTP 410, tried again since"))

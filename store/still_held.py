"""The nodes that a scheduler holds for us, or may, also where the hint has ended: they cost until it lets go."""

from datetime import datetime

import sqlalchemy as sa

from store import schema
from store.placements import PULLS

_HOLDS = ("cordon", "drain")
_OUTBOX, _PLACEMENTS, _HINTS = schema.outbox, schema.placements, schema.hints


def still_held(connection: sa.Connection, now: datetime) -> frozenset[str]:
    """What was asked of schedulers that are read back and not seen to be gone, and of those that cannot be.

    A receiver of webhooks lets go when it takes the release, or by itself when the hint's time is over; so does a
    scheduler that pulls, for one that is gone would count for good.
    """
    return _placed(connection, now) | _told(connection, now)


def _placed(connection: sa.Connection, now: datetime) -> frozenset[str]:
    state, action = _PLACEMENTS.c.state, _PLACEMENTS.c.action
    # A release that was refused has left the hold where it was.
    holding = sa.or_(
        sa.and_(state.in_(("asked", "confirmed")), action.in_((*_HOLDS, "release"))),
        sa.and_(state == "refused", action == "release"),
    )
    lasting = sa.or_(_PLACEMENTS.c.scheduler.not_like(f"{PULLS}%"), _HINTS.c.valid_until > now)
    placed = _PLACEMENTS.outerjoin(_HINTS, _HINTS.c.id == _PLACEMENTS.c.hint)
    return frozenset(connection.scalars(sa.select(_PLACEMENTS.c.node).select_from(placed).where(holding, lasting)))


def _told(connection: sa.Connection, now: datetime) -> frozenset[str]:
    query = (
        sa.select(_OUTBOX.c.hint, _OUTBOX.c.scheduler, _OUTBOX.c.state, _OUTBOX.c.payload, _HINTS.c.node)
        .join(_HINTS, _HINTS.c.id == _OUTBOX.c.hint)
        # An attempt that failed may have been taken all the same: its answer was lost.
        .where(_OUTBOX.c.attempts > 0, _HINTS.c.valid_until > now)
    )
    asked, let_go = set(), set()
    for hint, scheduler, state, payload, node in connection.execute(query):
        data = payload.get("data", {})
        if data.get("action") == "release" and state == "delivered":
            let_go.add((hint, scheduler, node))
        elif data.get("action") in _HOLDS and data.get("mode") != "shadow":
            asked.add((hint, scheduler, node))
    return frozenset(node for _hint, _scheduler, node in asked - let_go)

"""The nodes that schedulers which are read back have come to hold for us lately, whatever has become of them since."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from store import schema

_HOLDS = ("cordon", "drain")
_PLACEMENTS, _HINTS = schema.placements, schema.hints


@dataclass(frozen=True, slots=True)
class Taken:
    """`lately`: nodes that were last ordered to be held within the window; `held`: those that are seen to be held."""

    lately: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


def taken_since(connection: sa.Connection, since: datetime, besides: str | None = None) -> Taken:
    """What was taken since a moment, by any scheduler. What was refused, or waits for room, was not taken.

    Args:
        besides: a scheduler of which it is not to be told what it holds, for it was just looked at itself.
    """
    state, action, asked = _PLACEMENTS.c.state, _PLACEMENTS.c.action, _PLACEMENTS.c.asked
    is_held = sa.or_(sa.and_(state == "confirmed", action.in_(_HOLDS)), sa.and_(state == "asked", action == "release"))
    is_late = sa.and_(asked >= since, sa.or_(action == "release", state.not_in(("absent", "refused"))))
    query = (
        sa.select(_PLACEMENTS.c.node, _PLACEMENTS.c.scheduler, asked, is_held)
        .join(_HINTS, _HINTS.c.id == _PLACEMENTS.c.hint)
        .where(_HINTS.c.action.in_(_HOLDS), action.in_((*_HOLDS, "release")), sa.or_(is_held, is_late))
    )
    rows = connection.execute(query).all()
    lately = frozenset(node for node, _name, moment, _held in rows if moment is not None and moment >= since)
    return Taken(lately, frozenset(node for node, name, _moment, held in rows if held and name != besides))

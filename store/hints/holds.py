"""The nodes that a scheduler holds for us, or may, also where the hint has ended: they cost until it lets go."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, get_args

import sqlalchemy as sa

from store.database.known_nodes import absent_hints, is_counted
from store.records.hint import LIVE_STATES, OPEN_STATES, HintAction, HoldState
from store.tables import hint_tables
from store.tables.bulk_rows import is_one_of, upsert

# What each scheduler that is read back holds for a hint, as we last asked or saw it: one row a hint and scheduler.

HOLD_STATES: tuple[HoldState, ...] = get_args(HoldState)
FINAL_STATES: tuple[HoldState, ...] = ("undone", "released")
PULLS = "pull:"  # begins the name of a scheduler that cannot be read back, and tells itself what it did
_TABLE = hint_tables.placements


@dataclass(frozen=True, slots=True)
class SchedulerHold:
    """One row. `observed`: when it was first seen as it is.

    `due`: of one that is asked, when the order is given again if it shows no effect; of one that is confirmed, until
    when it was ordered.
    """

    hint: str
    scheduler: str
    node: str
    action: HintAction  # that it was last brought to; `release` while our hold is taken off
    state: HoldState
    attempts: int
    due: datetime
    asked: datetime | None = None
    observed: datetime | None = None
    detail: str | None = None


# Of a record's fields in their order: by position, for they are many and read in every turn.
_IN_ORDER = [_TABLE.c[each.name] for each in fields(SchedulerHold)]


def open_holds(connection: sa.Connection, scheduler: str, since: datetime) -> list[SchedulerHold]:
    """A scheduler's rows that may still change, and those of holds that are released since a moment."""
    is_fresh = sa.and_(_TABLE.c.state == "released", _TABLE.c.observed >= since)
    is_open = sa.or_(_TABLE.c.state.not_in(FINAL_STATES), is_fresh)
    query = sa.select(*_IN_ORDER).where(_TABLE.c.scheduler == scheduler, is_open)
    return [SchedulerHold(*row) for row in connection.execute(query)]


def hints_without_hold(connection: sa.Connection, scheduler: str, now: datetime) -> list[str]:
    """Ids of the live hints of nodes that a scheduler was not asked for yet, or for something else than now."""
    hints = hint_tables.hints.c
    mine = sa.and_(_TABLE.c.hint == hints.id, _TABLE.c.scheduler == scheduler)
    other = sa.and_(_TABLE.c.state == "confirmed", _TABLE.c.action != hints.action)
    query = sa.select(hints.id).select_from(hint_tables.hints.outerjoin(_TABLE, mine))
    live = (hints.state.in_(LIVE_STATES), hints.job.is_(None), hints.valid_until > now)
    return list(connection.scalars(query.where(*live, sa.or_(_TABLE.c.hint.is_(None), other))))


def holds_of(connection: sa.Connection, hints: Sequence[str]) -> Mapping[str, list[SchedulerHold]]:
    """The rows of hints, by hint, in the order of the schedulers' names."""
    found: dict[str, list[SchedulerHold]] = {}
    if hints:
        query = sa.select(*_IN_ORDER).where(is_one_of(connection, _TABLE.c.hint, hints))
        for row in connection.execute(query.order_by(_TABLE.c.hint, _TABLE.c.scheduler)).all():
            found.setdefault(row.hint, []).append(SchedulerHold(*row))
    return found


def save_holds(connection: sa.Connection, placements: Iterable[SchedulerHold]) -> None:
    """Write rows, each over what was there of its hint and scheduler."""
    rows: list[dict[str, Any]] = [asdict(placement) for placement in placements]
    upsert(connection, _TABLE, rows)


def orphan_holds(connection: sa.Connection, known: Iterable[str]) -> Mapping[str, int]:
    """How many nodes each scheduler holds for us, or may, that is none of those known: nobody will ask it to let go."""
    query = sa.select(_TABLE.c.scheduler, sa.func.count(sa.distinct(_TABLE.c.node)))
    held = (_TABLE.c.state.in_(("asked", "confirmed")), _TABLE.c.scheduler.not_like(f"{PULLS}%"))
    query = query.join(hint_tables.hints, hint_tables.hints.c.id == _TABLE.c.hint).where(
        *held, hint_tables.hints.c.job.is_(None)
    )
    query = query.where(_TABLE.c.scheduler.not_in(tuple(known))).group_by(_TABLE.c.scheduler)
    return {row[0]: row[1] for row in connection.execute(query.order_by(_TABLE.c.scheduler))}


# The nodes that schedulers which are read back have come to hold for us lately, whatever has become of them since.

_HOLDS = ("cordon", "drain")
_PLACEMENTS = hint_tables.placements
_HINTS = hint_tables.hints


@dataclass(frozen=True, slots=True)
class RecentHolds:
    """`lately`: nodes that were last ordered to be held within the window; `held`: those that are seen to be held."""

    lately: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


def recent_holds(connection: sa.Connection, since: datetime, besides: str | None = None) -> RecentHolds:
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
    return RecentHolds(lately, frozenset(node for node, name, _moment, held in rows if held and name != besides))


def recent_avoids(connection: sa.Connection, since: datetime, scheduler: str) -> RecentHolds:
    """What one scheduler was asked to avoid since a moment, where that takes the node."""
    state, action, asked = _PLACEMENTS.c.state, _PLACEMENTS.c.action, _PLACEMENTS.c.asked
    query = sa.select(_PLACEMENTS.c.node).join(_HINTS, _HINTS.c.id == _PLACEMENTS.c.hint)
    query = query.where(_PLACEMENTS.c.scheduler == scheduler, _HINTS.c.action == "avoid", asked >= since)
    is_late = sa.or_(action == "release", sa.and_(action == "avoid", state.not_in(("absent", "refused"))))
    return RecentHolds(lately=frozenset(connection.scalars(query.where(is_late))))


# Placements beside rows of hints, as the API and the command line show them.

_SHOWN = ("scheduler", "state", "action", "detail", "asked", "observed")


def with_holds(connection: sa.Connection, hints: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same hints, each with `placements`: what each scheduler that is read back holds for it, by name."""
    found = holds_of(connection, [hint["id"] for hint in hints])
    return [
        {**hint, "placements": [{name: getattr(one, name) for name in _SHOWN} for one in found.get(hint["id"], ())]}
        for hint in hints
    ]


_OUTBOX = hint_tables.outbox


def nodes_still_held(connection: sa.Connection, now: datetime) -> frozenset[str]:
    """What was asked of schedulers that are read back and not seen to be gone, and of those that cannot be.

    A receiver of webhooks lets go when it takes the release, or by itself when the hint's time is over; so does a
    scheduler that pulls, for one that is gone would count for good.
    """
    return _held_by_scheduler(connection, now) | _held_by_receiver(connection, now)


def costless_hints(connection: sa.Connection, since: datetime) -> frozenset[str]:
    """Ids of hints, of those that were valid since a moment, that hold nothing and so cost nothing.

    No scheduler that was asked knows their node (`absent`), or the inventory does not.
    """
    unknown = sa.select(_HINTS.c.id).where(
        sa.or_(_HINTS.c.state.in_(OPEN_STATES), _HINTS.c.valid_until > since, _HINTS.c.created >= since),
        sa.not_(is_counted(_HINTS.c.node)),
    )
    return frozenset(connection.scalars(absent_hints())).union(connection.scalars(unknown))


def nodes_still_avoided(connection: sa.Connection, takers: Collection[str]) -> frozenset[str]:
    """What was asked to be avoided of schedulers that take a node for that, and is not seen to be gone."""
    if not takers:
        return frozenset()
    state, action = _PLACEMENTS.c.state, _PLACEMENTS.c.action
    going = sa.and_(action == "release", _HINTS.c.action == "avoid", state.in_(("asked", "confirmed", "refused")))
    avoided = sa.or_(sa.and_(action == "avoid", state.in_(("asked", "confirmed"))), going)
    placed = _PLACEMENTS.outerjoin(_HINTS, _HINTS.c.id == _PLACEMENTS.c.hint)
    query = sa.select(_PLACEMENTS.c.node).select_from(placed)
    return frozenset(connection.scalars(query.where(_PLACEMENTS.c.scheduler.in_(sorted(takers)), avoided)))


def _held_by_scheduler(connection: sa.Connection, now: datetime) -> frozenset[str]:
    state, action = _PLACEMENTS.c.state, _PLACEMENTS.c.action
    # A release that was refused has left the hold where it was.
    holding = sa.or_(
        sa.and_(state.in_(("asked", "confirmed")), action.in_((*_HOLDS, "release"))),
        sa.and_(state == "refused", action == "release"),
    )
    lasting = sa.or_(_PLACEMENTS.c.scheduler.not_like(f"{PULLS}%"), _HINTS.c.valid_until > now)
    placed = _PLACEMENTS.outerjoin(_HINTS, _HINTS.c.id == _PLACEMENTS.c.hint)
    return frozenset(connection.scalars(sa.select(_PLACEMENTS.c.node).select_from(placed).where(holding, lasting)))


def _held_by_receiver(connection: sa.Connection, now: datetime) -> frozenset[str]:
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

"""What each scheduler that is read back holds for a hint, as we last asked or saw it: one row a hint and scheduler."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.bulk_rows import among
from store.hint import LIVE_STATES, HintAction

# asked: ordered, and not read back yet. confirmed: read back. foreign: another keeps work off the node. undone: a
# person took our hold off. absent: no such node there. refused: it will not be asked this. released: nothing of ours is
# there any more.
PlacementState: TypeAlias = Literal["asked", "confirmed", "foreign", "undone", "absent", "refused", "released"]
PLACEMENT_STATES: tuple[PlacementState, ...] = get_args(PlacementState)
FINAL_STATES: tuple[PlacementState, ...] = ("undone", "released")
PULLS = "pull:"  # begins the name of a scheduler that cannot be read back, and tells itself what it did
_TABLE = schema.placements


@dataclass(frozen=True, slots=True)
class Placement:
    """One row. `observed`: when it was first seen as it is.

    `due`: of one that is asked, when the order is given again if it shows no effect; of one that is confirmed, until
    when it was ordered.
    """

    hint: str
    scheduler: str
    node: str
    action: HintAction  # that it was last brought to; `release` while our hold is taken off
    state: PlacementState
    attempts: int
    due: datetime
    asked: datetime | None = None
    observed: datetime | None = None
    detail: str | None = None


# Of a record's fields in their order: by position, for they are many and read in every turn.
_IN_ORDER = [_TABLE.c[each.name] for each in fields(Placement)]


def unsettled(connection: sa.Connection, scheduler: str) -> list[Placement]:
    """A scheduler's rows that may still change."""
    query = sa.select(*_IN_ORDER).where(_TABLE.c.scheduler == scheduler, _TABLE.c.state.not_in(FINAL_STATES))
    return [Placement(*row) for row in connection.execute(query)]


def unplaced(connection: sa.Connection, scheduler: str, now: datetime) -> list[str]:
    """Ids of the live hints of nodes that a scheduler was not asked for yet, or for something else than now."""
    hints = schema.hints.c
    mine = sa.and_(_TABLE.c.hint == hints.id, _TABLE.c.scheduler == scheduler)
    other = sa.and_(_TABLE.c.state == "confirmed", _TABLE.c.action != hints.action)
    query = sa.select(hints.id).select_from(schema.hints.outerjoin(_TABLE, mine))
    live = (hints.state.in_(LIVE_STATES), hints.job.is_(None), hints.valid_until > now)
    return list(connection.scalars(query.where(*live, sa.or_(_TABLE.c.hint.is_(None), other))))


def placements_of(connection: sa.Connection, hints: Sequence[str]) -> Mapping[str, list[Placement]]:
    """The rows of hints, by hint, in the order of the schedulers' names."""
    found: dict[str, list[Placement]] = {}
    if hints:
        query = sa.select(*_IN_ORDER).where(among(connection, _TABLE.c.hint, hints))
        for row in connection.execute(query.order_by(_TABLE.c.hint, _TABLE.c.scheduler)):
            found.setdefault(row.hint, []).append(Placement(*row))
    return found


def save_placements(connection: sa.Connection, placements: Iterable[Placement]) -> None:
    """Write rows, each over what was there of its hint and scheduler."""
    rows: list[dict[str, Any]] = [asdict(placement) for placement in placements]
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(_TABLE)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in ("hint", "scheduler")}
    connection.execute(statement.on_conflict_do_update(index_elements=["hint", "scheduler"], set_=changed), rows)


def left_behind(connection: sa.Connection, known: Iterable[str]) -> Mapping[str, int]:
    """How many nodes each scheduler holds for us, or may, that is none of those known: nobody will ask it to let go."""
    query = sa.select(_TABLE.c.scheduler, sa.func.count(sa.distinct(_TABLE.c.node)))
    held = (_TABLE.c.state.in_(("asked", "confirmed")), _TABLE.c.scheduler.not_like(f"{PULLS}%"))
    query = query.join(schema.hints, schema.hints.c.id == _TABLE.c.hint).where(*held, schema.hints.c.job.is_(None))
    query = query.where(_TABLE.c.scheduler.not_in(tuple(known))).group_by(_TABLE.c.scheduler)
    return {row[0]: row[1] for row in connection.execute(query.order_by(_TABLE.c.scheduler))}


def nodes_held(connection: sa.Connection) -> frozenset[str]:
    """The nodes that a scheduler holds for us, or may: ordered and not yet read back, confirmed, or being released."""
    query = sa.select(_TABLE.c.node).where(_TABLE.c.state.in_(("asked", "confirmed")))
    return frozenset(connection.execute(query).scalars())

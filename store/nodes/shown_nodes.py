"""What schedulers that are read back show of each node: that it is down, kept from work by others, or that it responds.

    note_look(connection, "slurm", now, {"gpu-017": ShownNode(is_out=False, is_up=True)})
    shown_out(connection, ["gpu-017"], now)           # of these nodes, those that a scheduler shows out now
    shown_repairs(connection, {"gpu-017": ended})     # of outages that are told to have ended, those that it confirms

Whoever may send outages can tell any. A scheduler's own answer is another fact: only what both say hides a fault.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from store.tables import hint_tables
from store.tables.bulk_rows import is_one_of, upsert

_LOOKS, _NODES = hint_tables.scheduler_looks, hint_tables.scheduler_nodes
# Between two looks, or two heartbeats, lies no more than this, or nothing is known of the time between.
LONGEST_GAP = timedelta(seconds=900)
# That a scheduler answers is written down no more often.
SEEN_EVERY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class ShownNode:
    """One node as a scheduler shows it. `is_out`: down, or kept from work by others than us; `is_up`: it responds."""

    is_out: bool
    is_up: bool


def note_look(connection: sa.Connection, scheduler: str, now: datetime, shown: Mapping[str, ShownNode]) -> None:
    """Write down what a scheduler showed of every node that it knows; what is as it was is not written again."""
    mine = _NODES.c.scheduler == scheduler
    were = {row.node: row for row in connection.execute(sa.select(_NODES).where(mine))}
    rows = []
    for node, one in shown.items():
        was = were.get(node)
        if was is not None and (was.is_out, was.up_since is not None) == (one.is_out, one.is_up):
            continue
        back = None if was is None else was.back
        if was is not None and was.is_out and not one.is_out:
            back = now
        up_since = None if not one.is_up else now if was is None or was.up_since is None else was.up_since
        rows.append({"scheduler": scheduler, "node": node, "is_out": one.is_out, "up_since": up_since, "back": back})
    upsert(connection, _NODES, rows)
    if gone := were.keys() - shown.keys():
        connection.execute(sa.delete(_NODES).where(mine, is_one_of(connection, _NODES.c.node, gone)))
    last = connection.execute(sa.select(_LOOKS).where(_LOOKS.c.scheduler == scheduler)).first()
    is_unbroken = last is not None and timedelta(0) <= now - last.seen <= LONGEST_GAP
    if last is not None and is_unbroken and now - last.seen < SEEN_EVERY:
        return
    since = last.since if last is not None and is_unbroken else now
    upsert(connection, _LOOKS, [{"scheduler": scheduler, "since": since, "seen": now}])


def shown_out(connection: sa.Connection, nodes: Collection[str], now: datetime) -> frozenset[str]:
    """Of some nodes those that a scheduler shows down or kept from work by others, as far as it answers."""
    if not nodes:
        return frozenset()
    fresh = sa.select(_LOOKS.c.scheduler).where(_LOOKS.c.seen >= now - LONGEST_GAP)
    query = sa.select(_NODES.c.node).where(_NODES.c.is_out, _NODES.c.scheduler.in_(fresh))
    return frozenset(connection.scalars(query.where(is_one_of(connection, _NODES.c.node, nodes))))


def shown_repairs(connection: sa.Connection, told: Mapping[str, datetime]) -> dict[str, datetime]:
    """Of outages that are told to have ended, by node, those that a scheduler saw end, each at the earlier moment."""
    if not told:
        return {}
    query = sa.select(_NODES.c.node, sa.func.max(_NODES.c.back, type_=_NODES.c.back.type).label("back"))
    query = query.where(_NODES.c.back.is_not(None), is_one_of(connection, _NODES.c.node, told))
    return {row.node: min(row.back, told[row.node]) for row in connection.execute(query.group_by(_NODES.c.node))}


def shown_up(connection: sa.Connection, nodes: Collection[str], since: datetime, now: datetime) -> frozenset[str]:
    """Of some nodes those that every scheduler which knows them has shown to respond, without a gap, since a moment."""
    if not nodes:
        return frozenset()
    joined = _NODES.join(_LOOKS, _LOOKS.c.scheduler == _NODES.c.scheduler)
    is_up = sa.and_(
        _NODES.c.up_since.is_not(None),
        _NODES.c.up_since <= since,
        _LOOKS.c.since <= since,
        _LOOKS.c.seen >= now - LONGEST_GAP,
    )
    query = sa.select(_NODES.c.node, sa.func.min(sa.case((is_up, 1), else_=0))).select_from(joined)
    query = query.where(is_one_of(connection, _NODES.c.node, nodes)).group_by(_NODES.c.node)
    return frozenset(node for node, all_up in connection.execute(query) if all_up)

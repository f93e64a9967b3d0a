"""What may be ordered by an older look at a scheduler: what a hint asks for the first time, or more than before.

Nothing is lost by it: whoever carries an order out reads the node again right before, and touches none that others
hold. Confirming, releasing and seeing what people have done wait for a new look, which in a large cluster takes long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.actuator import Hold, Order
from schedulers.reconcile import Plan, Seen, reconcile
from schedulers.wish import RANK
from store.hint import OPEN_STATES
from store.hint_log import read_hints_by_id, read_hints_of
from store.placements import Placement, placements_of, unplaced

FRESH = timedelta(seconds=60)


@dataclass(slots=True)
class LastLook:
    """What a server remembers of a scheduler between two turns: when it saw it, and what it held then."""

    at: datetime | None = None
    holds: Mapping[str, Hold] = field(default_factory=dict)

    def take(self, now: datetime) -> Mapping[str, Hold]:
        """What was seen lately, once: a turn that fails begins with a new look."""
        holds, self.holds = self.holds, {}
        return holds if self.at is not None and now - self.at <= FRESH else {}


def first_plan(connection: sa.Connection, seen: Seen) -> tuple[Seen, Plan]:
    """The orders that need no new look with their placements, and what they go by.

    Args:
        seen: with the holds as they were seen last, without hints and placements.
    """
    held = {hold.node: hold for hold in seen.holds}
    ids = unplaced(connection, seen.scheduler, seen.now)
    nodes = {hint.node for hint in read_hints_by_id(connection, ids)} & held.keys()
    hints = {hint.id: hint for hint in read_hints_of(connection, nodes, OPEN_STATES)}
    holds = [held[node] for node in sorted(nodes)]
    named = {hold.hint for hold in holds if hold.hint is not None} - hints.keys()
    hints |= {hint.id: hint for hint in read_hints_by_id(connection, named)}
    rows = (each for found in placements_of(connection, sorted(hints)).values() for each in found)
    placements = {each.hint: each for each in rows if each.scheduler == seen.scheduler}
    seen = replace(seen, holds=holds, hints=hints, placements=placements)
    plan = reconcile(seen)
    orders = tuple(order for order in plan.orders if _is_more(order, placements.get(order.hint)))
    given = {order.hint for order in orders}
    return seen, Plan(orders, tuple(each for each in plan.placements if each.hint in given))


def _is_more(order: Order, was: Placement | None) -> bool:
    return was is None or RANK[order.action] > RANK[was.action]

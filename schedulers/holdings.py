"""How much of the budget is used: what people ask before they approve one more hold.

holdings(connection, policy, now)     # Holdings(held=3, most=8, ...)
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.budget import cap, held_nodes, held_within_hour
from schedulers.facts import Inputs
from schedulers.settings import Policy
from store import schema
from store.hint_log import recent_hints
from store.still_held import still_held

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Nodes that we hold (in shadow mode: would hold), and how many we may; nodes that are known."""

    held: int
    most: int
    held_within_hour: int
    most_per_hour: int
    nodes: int


def holdings(connection: sa.Connection, policy: Policy, now: datetime) -> Holdings:
    """What is held as of a moment, by the count that the policy goes by."""
    nodes = connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0
    hints = tuple(recent_hints(connection, now, _HOUR))
    inputs = Inputs(now, (), hints, still_held=still_held(connection, now))
    held, hour = len(held_nodes(inputs, policy)), held_within_hour(inputs, policy)
    return Holdings(held, cap(nodes, policy), hour, policy.budgets.per_hour, nodes)

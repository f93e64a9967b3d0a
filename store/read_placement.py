"""What there is to know of nodes as places for work: one query for each thing, over all nodes at once.

risks = node_risks(connection, fleet)        # store/read_fleet.py
places = read_places(connection, now)
hints = standing_hints(connection)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from store import schema
from store.hint import OPEN_STATES


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is and how many GPUs it has; None where nobody has said."""

    leaf: str | None
    rack: str | None
    nvlink_domain: str | None
    gpus: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """A node's open hint, in short."""

    id: str
    action: str
    state: str


def read_places(connection: sa.Connection, now: datetime) -> dict[str, Place]:
    """Every node in service."""
    table = schema.nodes
    until = table.c.in_service_until
    query = sa.select(table.c.node, table.c.leaf, table.c.rack, table.c.nvlink_domain, table.c.gpus)
    found = connection.execute(query.where(sa.or_(until.is_(None), until > now)))
    return {node: Place(leaf, rack, domain, gpus) for node, leaf, rack, domain, gpus in found}


def standing_hints(connection: sa.Connection) -> Mapping[str, Standing]:
    """Each node's open hint on the node itself; the newest, should there be several."""
    table = schema.hints
    query = sa.select(table.c.node, table.c.id, table.c.action, table.c.state)
    query = query.where(table.c.state.in_(OPEN_STATES), table.c.job.is_(None))
    found = connection.execute(query.order_by(table.c.created, table.c.id))
    return {node: Standing(ident, action, state) for node, ident, action, state in found}

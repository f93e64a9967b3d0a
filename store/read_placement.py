"""What there is to know of nodes as places for work, in one query: where they are, their risk, their open hint.

places = read_places(connection, fleet)                 # `fleet` as in store/read_fleet.py
places = read_places(connection, fleet, ["gpu-001"])
"""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from store import schema
from store.bulk_rows import among
from store.read_fleet import WEEK_H, Fleet, node_states, scores_of


class Place(NamedTuple):
    """A node in service; None where nobody has said. A tuple, for there are thousands in an answer."""

    node: str
    state: str
    risk_24h: float | None = None
    risk_7d: float | None = None
    leaf: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    gpus: int | None = None
    hint: str | None = None
    hint_action: str | None = None
    hint_state: str | None = None


def read_places(connection: sa.Connection, fleet: Fleet, names: Sequence[str] | None = None) -> list[Place]:
    """Every node in service by name, or those of some that are."""
    nodes = schema.nodes.c
    query = node_states(fleet).add_columns(nodes.nvlink_domain)
    query = query.where(sa.or_(nodes.in_service_until.is_(None), nodes.in_service_until > fleet.now))
    if names is not None:
        query = query.where(among(connection, nodes.node, names))
    states, week = query.subquery(), scores_of(fleet, WEEK_H)
    columns = (
        *(states.c.node, states.c.state, states.c.score_24h, week.c.score, states.c.leaf, states.c.rack),
        *(states.c.nvlink_domain, states.c.gpus, states.c.hint_id, states.c.hint_action, states.c.hint_state),
    )
    joined = states.outerjoin(week, week.c.node == states.c.node)
    found = connection.execute(sa.select(*columns).select_from(joined).order_by(states.c.node))
    # One by one: thousands of rows at once call for a garbage collection.
    return [Place._make(row) for row in found]

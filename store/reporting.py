"""Which nodes are silent: in service, with a sidecar that reported before and does no more.

A node without a sidecar is not among them: its events come when something happens, so that it is quiet says nothing.
"""

from datetime import datetime

import sqlalchemy as sa

from store import schema


def silent_nodes(connection: sa.Connection, at: datetime, before: datetime) -> tuple[int, frozenset[str]]:
    """How many nodes in service at a moment have a sidecar, and those of them not heard of since `before`."""
    nodes = schema.nodes.c
    joined = schema.sidecars.join(schema.nodes, nodes.node == schema.sidecars.c.node)
    serving = sa.and_(
        sa.or_(nodes.in_service_since.is_(None), nodes.in_service_since <= at),
        sa.or_(nodes.in_service_until.is_(None), nodes.in_service_until > at),
    )
    expected = connection.scalar(sa.select(sa.func.count()).select_from(joined).where(serving))
    quiet = sa.or_(nodes.last_seen.is_(None), nodes.last_seen < before)
    silent = connection.scalars(sa.select(nodes.node).select_from(joined).where(serving, quiet))
    return int(expected or 0), frozenset(silent)

"""Whether a fleet is so large that its arithmetic has a process beside the server, where it holds up no request."""

import sqlalchemy as sa

from store.tables import schema

# Fewer nodes are judged in less time than a request may be kept waiting.
APART_FROM = 1_000


def is_large(engine: sa.Engine, apart_from: int = APART_FROM) -> bool:
    """Whether the fleet has so many nodes; a database in memory nobody else can read."""
    if engine.url.database in (None, "", ":memory:"):
        return False
    with engine.connect() as connection:
        return (connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0) >= apart_from

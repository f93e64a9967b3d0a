"""What is known of the models without loading them."""

from typing import Any

import sqlalchemy as sa

from store import schema


def newest_model(connection: sa.Connection) -> Any | None:
    """The newest model's `id created trained_until horizon_h metrics`; None before the first training."""
    table = schema.models
    columns = (table.c.id, table.c.created, table.c.trained_until, table.c.horizon_h, table.c.metrics)
    query = sa.select(*columns).order_by(table.c.created.desc(), table.c.horizon_h, table.c.id).limit(1)
    return connection.execute(query).first()

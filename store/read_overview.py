"""The cluster in a few numbers: counts over a day at most, so that the cost does not grow with history."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store import schema

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


def recent_sources(connection: sa.Connection, now: datetime) -> list[dict[str, Any]]:
    """Each source that spoke within a day: `source`, `last_event`, `events_1h`."""
    table = schema.events
    recent = sa.func.sum(sa.case((table.c.time > now - _HOUR, 1), else_=0))
    query = (
        sa.select(table.c.source, sa.func.max(table.c.time, type_=schema.UtcTime()), recent)
        .where(table.c.time > now - _DAY, table.c.time <= now)
        .group_by(table.c.source)
        .order_by(table.c.source)
    )
    return [
        {"source": source, "last_event": last, "events_1h": int(count)}
        for source, last, count in connection.execute(query)
    ]


def count_incidents(connection: sa.Connection, since: datetime, until: datetime) -> int:
    """How many incidents showed within a window."""
    table = schema.incidents
    query = sa.select(sa.func.count()).select_from(table).where(table.c.end >= since, table.c.start <= until)
    return int(connection.scalar(query) or 0)


def newest_run(connection: sa.Connection) -> str | None:
    """The run that started last, among those that the scheduler told of."""
    table = schema.jobs
    query = sa.select(table.c.run).where(table.c.start.is_not(None)).order_by(table.c.start.desc(), table.c.run)
    run: str | None = connection.scalar(query.limit(1))
    return run


def newest_states(connection: sa.Connection, runs: Sequence[str]) -> dict[str, str]:
    """The state of each run's newest job, of those that have any."""
    table = schema.jobs
    query = sa.select(table.c.run, table.c.state).where(table.c.run.in_(runs))
    # In this order the newest comes last.
    return dict(
        connection.execute(query.order_by(sa.func.coalesce(table.c.start, table.c.submit), table.c.job_id)).all()
    )


def read_links(connection: sa.Connection) -> list[dict[str, Any]]:
    """Every cable."""
    table = schema.links
    names = ("switch", "port", "peer", "peer_port", "peer_type")
    # Plain tuples: a large fabric has tens of thousands.
    rows = connection.execute(sa.select(*(table.c[name] for name in names)).order_by(table.c.switch, table.c.port))
    return [dict(zip(names, row, strict=True)) for row in rows]


def read_places(connection: sa.Connection) -> list[dict[str, Any]]:
    """Every node with its rack and leaf, by name."""
    table = schema.nodes
    names = ("node", "rack", "leaf")
    rows = connection.execute(sa.select(*(table.c[name] for name in names)).order_by(table.c.node))
    return [dict(zip(names, row, strict=True)) for row in rows]

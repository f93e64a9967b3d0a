"""The cluster in a few numbers: counts over a day at most, so that the cost does not grow with history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.database.known_nodes import is_counted
from store.records.node import Node
from store.records.outage import Outage
from store.tables import schema

# What there was of the cluster: GPUs in service, and nodes out of it. Sums are made in the database.
#
# service_spans(connection)                     # of 12,500 nodes, a few rows
# outage_spans(connection, since, until)

_NODES, _OUTAGES = schema.nodes, schema.outages


@dataclass(frozen=True, slots=True)
class ServiceSpan:
    """Nodes that came and went together: since and until when (None: as far as is known), how many, how many GPUs."""

    since: datetime | None
    until: datetime | None
    nodes: int
    gpus: int
    without_gpus: int  # nodes whose GPUs are not known: no part of `gpus`


@dataclass(frozen=True, slots=True)
class OutageSpan:
    """A node out of service while it should have been in it; `end` None = still."""

    node: str
    start: datetime
    end: datetime | None
    planned: bool
    gpus: int


def service_spans(connection: sa.Connection) -> list[ServiceSpan]:
    """When how many GPUs were in service."""
    since, until = _NODES.c.in_service_since, _NODES.c.in_service_until
    known = sa.func.count(_NODES.c.gpus)
    query = sa.select(since, until, sa.func.count(), sa.func.coalesce(sa.func.sum(_NODES.c.gpus), 0), known)
    rows = connection.execute(query.where(is_counted(_NODES.c.node)).group_by(since, until))
    return [ServiceSpan(begin, end, nodes, int(gpus), nodes - told) for begin, end, nodes, gpus, told in rows]


def outage_spans(connection: sa.Connection, since: datetime, until: datetime) -> list[OutageSpan]:
    """The outages of nodes with known GPUs that touch [since, until), within the nodes' service; by node and start."""
    begin = sa.case((_NODES.c.in_service_since > _OUTAGES.c.start, _NODES.c.in_service_since), else_=_OUTAGES.c.start)
    end = sa.case(
        (sa.and_(_NODES.c.in_service_until.is_not(None), _OUTAGES.c.end.is_(None)), _NODES.c.in_service_until),
        (_NODES.c.in_service_until < _OUTAGES.c.end, _NODES.c.in_service_until),
        else_=_OUTAGES.c.end,
    )
    first, last = (sa.type_coerce(moment, schema.UtcTime()) for moment in (begin, end))
    query = (
        sa.select(_OUTAGES.c.node, first, last, _OUTAGES.c.planned, _NODES.c.gpus)
        .join(_NODES, _NODES.c.node == _OUTAGES.c.node)
        .where(_OUTAGES.c.start < until, sa.or_(_OUTAGES.c.end.is_(None), _OUTAGES.c.end > since))
        .where(_NODES.c.gpus > 0)
        .order_by(_OUTAGES.c.node, _OUTAGES.c.start)
    )
    return [OutageSpan(*row) for row in connection.execute(query).all()]


def read_nodes(connection: sa.Connection) -> list[Node]:
    """Every known node, by name."""
    names = [name for name in schema.nodes.columns.keys() if name != "last_seen"]  # noqa: SIM118  # columns is no dict
    query = sa.select(*(schema.nodes.c[name] for name in names)).order_by(schema.nodes.c.node)
    return [Node(**row) for row in connection.execute(query).mappings()]


def read_outages(
    connection: sa.Connection, until: datetime | None = None, node: str | None = None, since: datetime | None = None
) -> list[Outage]:
    """Outages that began at or after `since` and before `until`, in order of their start.

    The end of one that ended after `until` is hidden: nobody knew it then.
    """
    table = schema.outages
    query = sa.select(table).order_by(table.c.start, table.c.node)
    if until is not None:
        query = query.where(table.c.start < until)
    if since is not None:
        query = query.where(table.c.start >= since)
    if node is not None:
        query = query.where(table.c.node == node)
    found = []
    for row in connection.execute(query).mappings():
        outage = dict(row)
        if until is not None and outage["end"] is not None and outage["end"] >= until:
            outage["end"] = None
        found.append(Outage(**outage))
    return found


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


def read_node_places(connection: sa.Connection) -> list[dict[str, Any]]:
    """Every node with its rack and leaf, by name."""
    table = schema.nodes
    names = ("node", "rack", "leaf")
    rows = connection.execute(sa.select(*(table.c[name] for name in names)).order_by(table.c.node))
    return [dict(zip(names, row, strict=True)) for row in rows]

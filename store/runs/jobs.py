"""Jobs that run at a moment, and the nodes that they have."""

from datetime import datetime, timedelta
from functools import lru_cache

import sqlalchemy as sa

from store.records.event import RecordError
from store.records.hostlist import expand
from store.records.job import Job
from store.tables import schema


def running_jobs(connection: sa.Connection, now: datetime) -> list[tuple[str, str, tuple[str, ...]]]:
    """(job, run, nodes) of each job that has started and not ended, by start; a broken node list names no nodes."""
    jobs = schema.jobs.c
    query = sa.select(jobs.job_id, jobs.run, jobs.node_list).where(
        jobs.start <= now, sa.or_(jobs.end.is_(None), jobs.end > now)
    )
    rows = connection.execute(query.order_by(jobs.start, jobs.job_id))
    return [(job, run, _nodes(node_list)) for job, run, node_list in rows]


def busy_nodes(connection: sa.Connection, now: datetime, heard_within: timedelta) -> frozenset[str] | None:
    """The nodes that a job runs on; None where nobody tells of jobs: none runs, and none has ended within a while."""
    jobs = schema.jobs.c
    lasting = sa.or_(jobs.end.is_(None), jobs.end > now)
    query = sa.select(jobs.node_list, lasting).where(
        jobs.start <= now, sa.or_(jobs.end.is_(None), jobs.end > now - heard_within)
    )
    rows = connection.execute(query).all()
    if not rows:
        return None
    return frozenset(node for node_list, runs in rows if runs for node in _nodes(node_list))


def jobs_between(
    connection: sa.Connection, since: datetime, until: datetime
) -> list[tuple[str, datetime, datetime | None, tuple[str, ...]]]:
    """(run, start, end, nodes) of each job that ran within a window, by start."""
    jobs = schema.jobs.c
    query = sa.select(jobs.run, jobs.start, jobs.end, jobs.node_list).where(
        jobs.start <= until, sa.or_(jobs.end.is_(None), jobs.end >= since)
    )
    rows = connection.execute(query.order_by(jobs.start, jobs.job_id))
    return [(run, start, end, _nodes(node_list)) for run, start, end, node_list in rows]


@lru_cache(maxsize=1024)
def _nodes(node_list: str) -> tuple[str, ...]:
    try:
        return tuple(expand(node_list))
    except RecordError:
        return ()


def read_jobs(connection: sa.Connection, run: str | None = None) -> list[Job]:
    """Attempts in order of their start (or submit); all of them, or one run's."""
    table = schema.jobs
    query = sa.select(*(column for column in table.columns if column.name != "attempt"))
    if run is not None:
        query = query.where(table.c.run == run)
    query = query.order_by(sa.func.coalesce(table.c.start, table.c.submit), table.c.job_id)
    return [Job(**row) for row in connection.execute(query).mappings()]

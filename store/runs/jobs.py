"""Jobs of a run, of a moment or of a window, and the nodes that they have."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from store.records.event import RecordError
from store.records.hostlist import expand, is_named
from store.records.job import Job
from store.tables import schema
from store.tables.bulk_rows import is_one_of

_JOBS = schema.jobs


def running_jobs(connection: sa.Connection, now: datetime) -> list[tuple[str, str, tuple[str, ...]]]:
    """(job, run, nodes) of each job that has started and not ended, by start; a broken node list names no nodes."""
    jobs = _JOBS.c
    query = sa.select(jobs.job_id, jobs.run, jobs.node_list).where(
        jobs.start <= now, sa.or_(jobs.end.is_(None), jobs.end > now)
    )
    rows = connection.execute(query.order_by(jobs.start, jobs.job_id))
    return [(job, run, _nodes(node_list)) for job, run, node_list in rows]


def busy_nodes(connection: sa.Connection, now: datetime, heard_within: timedelta) -> frozenset[str] | None:
    """The nodes that a job runs on; None where nobody tells of jobs: none runs, and none has ended within a while."""
    jobs = _JOBS.c
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
    jobs = _JOBS.c
    query = sa.select(jobs.run, jobs.start, jobs.end, jobs.node_list).where(*_within(since, until))
    rows = connection.execute(query.order_by(jobs.start, jobs.job_id))
    return [(run, start, end, _nodes(node_list)) for run, start, end, node_list in rows]


def jobs_on_node(
    connection: sa.Connection, node: str, since: datetime, until: datetime, most: int
) -> tuple[list[Job], datetime | None]:
    """The jobs that ran on a node within a window, by start; and since when that is all, where jobs were left out.

    Args:
        most: jobs of the cluster that are looked at, the newest.
    """
    # A bracket may name it.
    may = _JOBS.c.node_list.contains("[") | _JOBS.c.node_list.contains(node, autoescape=True)
    query = _query().order_by(None).where(*_within(since, until), may)
    rows = connection.execute(query.order_by(_JOBS.c.start.desc(), _JOBS.c.job_id).limit(most)).mappings().all()
    found = [Job(**row) for row in rows if is_named(node, row["node_list"])]
    return found[::-1], rows[-1]["start"] if len(rows) == most else None


@lru_cache(maxsize=1024)
def _nodes(node_list: str) -> tuple[str, ...]:
    try:
        return tuple(expand(node_list))
    except RecordError:
        return ()


def read_jobs(
    connection: sa.Connection, run: str | None = None, window: tuple[datetime, datetime] | None = None
) -> list[Job]:
    """Attempts in order of their start (or submit): all, those of a run, those that ran at a moment of a window."""
    query = _query()
    if run is not None:
        query = query.where(_JOBS.c.run == run)
    if window is not None:
        query = query.where(*_within(*window))
    return _whole(Job(**row) for row in connection.execute(query).mappings())


def _whole(jobs: Iterable[Job]) -> list[Job]:
    """Jobs in the same order; the parts of a heterogeneous one (`4711+0`, `4711+1`) are one job of all their nodes."""
    found: dict[tuple[object, ...], Job] = {}
    for job in jobs:
        number, _plus, part = job.job_id.partition("+")
        is_part = part.isdecimal() and number[:1].isdecimal()  # a name may hold a plus
        key = (job.run, number, job.submit, job.start) if is_part else (job.job_id, job.submit, job.start)
        first = found.get(key)
        found[key] = _with_part(first, job) if is_part and first is not None else job
    return list(found.values())


def _with_part(job: Job, part: Job) -> Job:
    """A job and one more part of it: it ends with the last, by a node's fault or badly where one of them does."""
    both = (job, part)
    running = [one for one in both if one.end is None]
    of_nodes = [one for one in both if one.state.startswith(("NODE_FAIL", "BOOT_FAIL"))]
    told = [*running, *of_nodes, *(one for one in both if not one.state.startswith("COMPLETED")), job][0]
    return replace(
        job,
        state=told.state,
        exit_code=told.exit_code,
        end=None if job.end is None or part.end is None else max(job.end, part.end),
        nodes=None if job.nodes is None or part.nodes is None else job.nodes + part.nodes,
        node_list=",".join(filter(None, (job.node_list, part.node_list))),
    )


def _query() -> sa.Select[Any]:
    columns = [column for column in _JOBS.columns if column.name != "attempt"]
    return sa.select(*columns).order_by(sa.func.coalesce(_JOBS.c.start, _JOBS.c.submit), _JOBS.c.job_id)


def _within(since: datetime, until: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    """Whether a job ran at any moment of a closed window."""
    return _JOBS.c.start <= until, _JOBS.c.end.is_(None) | (_JOBS.c.end >= since)


def run_names_of_jobs(connection: sa.Connection, after: str, limit: int) -> list[str]:
    """The runs that jobs name, sorted, those after a name."""
    query = sa.select(_JOBS.c.run).where(_JOBS.c.run > after, _JOBS.c.run != "").distinct()
    return list(connection.scalars(query.order_by(_JOBS.c.run).limit(limit)))


def runs_of_job(connection: sa.Connection, job_id: str) -> set[str]:
    """The runs of the jobs with a number."""
    return set(connection.scalars(sa.select(_JOBS.c.run).where(_JOBS.c.job_id == job_id, _JOBS.c.run != "").distinct()))


def jobs_of_runs(connection: sa.Connection, runs: Sequence[str]) -> dict[str, list[Job]]:
    """The jobs of some runs, each run's in order of their start (or submit); a run without any is left out."""
    found: dict[str, list[Job]] = {}
    for row in connection.execute(_query().where(is_one_of(connection, _JOBS.c.run, runs))):
        found.setdefault(row.run, []).append(Job(**row._mapping))
    return {run: _whole(jobs) for run, jobs in found.items()}


def job_marks(connection: sa.Connection, runs: Sequence[str] | None = None) -> dict[str, str]:
    """Of every run that jobs name (or of some), a text that changes when its jobs do."""
    moments = [sa.func.max(column, type_=schema.UtcTime()) for column in (_JOBS.c.submit, _JOBS.c.start, _JOBS.c.end)]
    counts = (sa.func.count(), sa.func.count(_JOBS.c.start), sa.func.count(_JOBS.c.end))
    query = sa.select(_JOBS.c.run, *counts, *moments).where(_JOBS.c.run != "").group_by(_JOBS.c.run)
    if runs is not None:
        query = query.where(is_one_of(connection, _JOBS.c.run, runs))
    return {run: " ".join(map(str, marks)) for run, *marks in connection.execute(query)}

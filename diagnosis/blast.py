"""The blast radius: how many nodes' work an incident touches, those of the job that ran on its node."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import sqlalchemy as sa

from store import schema
from store.event import RecordError
from store.hostlist import expand
from store.incident import Incident
from store.job import Job


@lru_cache(maxsize=256)
def hosts(node_list: str) -> frozenset[str]:
    """The hosts of a hostlist; none where the text is broken."""
    try:
        return frozenset(expand(node_list))
    except RecordError:
        return frozenset()


def jobs_between(connection: sa.Connection, since: datetime, until: datetime) -> list[Job]:
    """Attempts that ran at any moment of a closed window, by start."""
    table = schema.jobs
    query = (
        sa.select(*(column for column in table.columns if column.name != "attempt"))
        .where(table.c.start <= until, table.c.end.is_(None) | (table.c.end >= since))
        .order_by(table.c.start, table.c.job_id)
    )
    return [Job(**row) for row in connection.execute(query).mappings()]


def with_blast_radius(connection: sa.Connection, incidents: Sequence[Incident]) -> list[Incident]:
    """Incidents (by start) with the node count of the largest job that ran on their node when they began.

    None where no job ran there, or where the incident names no node.
    """
    if not incidents:
        return []
    waiting = jobs_between(connection, incidents[0].start, incidents[-1].start)
    running: list[Job] = []
    taken = 0
    found = []
    for incident in incidents:
        while taken < len(waiting) and _begun(waiting[taken], incident.start):
            running.append(waiting[taken])
            taken += 1
        running = [job for job in running if job.end is None or job.end >= incident.start]
        sizes = [_size(job) for job in running if incident.node in hosts(job.node_list)]
        radius = max(sizes, default=None)
        found.append(incident if radius == incident.blast_radius else replace(incident, blast_radius=radius))
    return found


def _begun(job: Job, moment: datetime) -> bool:
    return job.start is not None and job.start <= moment


def _size(job: Job) -> int:
    return job.nodes or len(hosts(job.node_list))

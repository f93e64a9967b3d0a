"""Which jobs ran where a fault was when it began: what it may have stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from store.runs.jobs import jobs_between
from wire.events import IncidentJson


@dataclass(frozen=True, slots=True)
class JobHit:
    """A job that ran on a node of an incident when that began; `end` None: it runs still. `nodes`: how many it has."""

    run: str
    start: datetime
    end: datetime | None
    nodes: int


def jobs_hit(connection: sa.Connection, incidents: Sequence[IncidentJson]) -> dict[str, list[JobHit]]:
    """The jobs that incidents hit, by their ids, the largest first."""
    starts = [one.start for one in incidents if one.node is not None]
    if not starts:
        return {}
    jobs = [(job, frozenset(job[3])) for job in jobs_between(connection, min(starts), max(starts))]
    found: dict[str, list[JobHit]] = {}
    for one in incidents:
        felt = {one.node, *one.nodes}
        for (run, start, end, _), nodes in jobs:
            if start <= one.start and (end is None or end >= one.start) and not felt.isdisjoint(nodes):
                found.setdefault(one.id, []).append(JobHit(run, start, end, len(nodes)))
    return {ident: sorted(hit, key=lambda job: (-job.nodes, job.run)) for ident, hit in found.items()}

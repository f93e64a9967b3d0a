"""The scene of a search: what is seen at a moment, the devices, the jobs and the planned work around it.

scene = read_scene(connection, run="llm-70b")   # from the store
for verdict in explain(scene): ...              # `diagnosis/causes/explanation.py`: pure, of memory alone
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.stop import LONGEST, Stoppage, stop_of
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.stored_graph import read_graph
from diagnosis.hangs.placement import placements_of
from diagnosis.symptoms.clocks import read_clocks
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.symptom import Symptom
from store.events.event_pages import EventWindow, read_events, read_incidents
from store.nodes.inventory import read_outages
from store.records.event import Event
from store.records.hostlist import hosts
from store.records.incident import Incident
from store.records.job import Job
from store.records.outage import Outage
from store.runs.jobs import read_jobs
from store.tables import schema

# How far back what is seen may lie: a release shows its faults over hours, a rack its heat.
REACH = timedelta(hours=24)
# A node that dies silently is marked down by the scheduler up to this long after the work stopped.
MARKED_DOWN = timedelta(minutes=30)
# What is known of later tells whether it was cured.
_AFTERMATH = timedelta(minutes=10)
# What belongs together comes within so long.
_SETTLED = timedelta(seconds=5)
# Lines of work, of which there are many, and no symptoms.
_NO_SYMPTOMS = ("iteration", "telemetry", "job", "outage", "checkpoint")


@dataclass(frozen=True, slots=True)
class SceneJob:
    """One attempt of a run. `end` is None while it runs."""

    run: str
    job_id: str
    nodes: frozenset[str]
    start: datetime
    end: datetime | None
    state: str
    exit_code: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a search for causes knows. `stop` is the end of work that is to be explained, None where none is asked.

    `outages` are planned and unplanned ones; `incidents` those that verdicts may name as theirs.
    """

    now: datetime
    symptoms: Sequence[Symptom]
    graph: DeviceGraph
    jobs: tuple[SceneJob, ...] = ()
    outages: tuple[Outage, ...] = ()
    stop: Stoppage | None = None
    incidents: tuple[Incident, ...] = ()


def scene_job(job: Job) -> SceneJob | None:
    """A job as a scene has it; None of one that never started."""
    if job.start is None:
        return None
    return SceneJob(job.run, job.job_id, hosts(job.node_list), job.start, job.end, job.state, job.exit_code)


def read_scene(connection: sa.Connection, run: str | None = None, at: datetime | None = None) -> Scene | None:
    """The scene of a stop as the store knows it; None where nothing is to be explained.

    Args:
        run: the training run whose stop is to be explained; None for whatever stopped last.
        at: as of this moment; None for the newest that is known.
    """
    stop = stop_of(connection, run, at)
    if stop is None:
        return None
    now = at or stop.end + _SETTLED
    since = min(now, stop.end) - (LONGEST if run is not None else REACH)
    attempts = read_jobs(connection, window=(since, now))
    fold = SymptomFold(read_graph(connection, at))
    fold.clocks = read_clocks(connection, min(since, stop.since), now)
    fold.place_ranks(placements_of(attempts))
    fold.take(_events(connection, min(since, stop.since), now + (_AFTERMATH if at is None else timedelta())))
    jobs = [scene_job(job) for job in attempts]
    outages = read_outages(
        connection, until=max(now, stop.end + MARKED_DOWN) + timedelta(microseconds=1), since=since - REACH
    )
    return Scene(
        now=now,
        symptoms=fold.symptoms(now),
        graph=fold.graph,
        jobs=tuple(job for job in jobs if job is not None),
        outages=tuple(one for one in outages if one.end is None or one.end >= since),
        stop=stop,
        incidents=tuple(read_incidents(connection, since, now + timedelta(microseconds=1))),
    )


def _events(connection: sa.Connection, since: datetime, until: datetime) -> Iterator[Event]:
    window = EventWindow(since=since, until=until + timedelta(microseconds=1))
    table = schema.events
    kinds = connection.scalars(
        sa.select(table.c.kind).where(table.c.time >= since, table.c.time <= until).distinct()
    ).all()
    wanted = [kind for kind in kinds if kind not in _NO_SYMPTOMS]
    return read_events(connection, window, kinds=wanted) if wanted else iter(())

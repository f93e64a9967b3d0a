"""Reads the scene of a stop from the store: its symptoms, devices, jobs and outages."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.scene import MARKED_DOWN, REACH, Scene, scene_job
from diagnosis.causes.stop import LONGEST, stop_of
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.stored_graph import read_graph
from diagnosis.hangs.placement import placements_of
from diagnosis.hangs.stuck_ranks import WORK
from diagnosis.symptoms.clocks import read_clocks
from diagnosis.symptoms.folding import SymptomFold
from store.events.event_pages import EventWindow, read_events, read_incidents
from store.nodes.inventory import read_outages
from store.records.event import Event
from store.runs.jobs import read_jobs
from store.tables import schema

# What is known of later tells whether it was cured.
_AFTERMATH = timedelta(minutes=10)
# What belongs together comes within so long.
_SETTLED = timedelta(seconds=5)
# Lines of work, of which there are many, and no symptoms.
_NO_SYMPTOMS = (WORK, "telemetry", "job", "outage")


def read_scene(
    connection: sa.Connection, run: str | None = None, at: datetime | None = None, graph: DeviceGraph | None = None
) -> Scene | None:
    """The scene of a stop as the store knows it; None where nothing is to be explained.

    Args:
        run: the training run whose stop is to be explained; None for whatever stopped last.
        at: as of this moment; None for the newest that is known.
        graph: as of the same moment; None: it is read.
    """
    stop = stop_of(connection, run, at)
    if stop is None:
        return None
    now = at or stop.end + _SETTLED
    since = min(now, stop.end) - (LONGEST if run is not None else REACH)
    attempts = read_jobs(connection, window=(since, now))
    fold = SymptomFold(read_graph(connection, at) if graph is None else graph)
    fold.clocks = read_clocks(connection, min(since, stop.since), now)
    fold.place_ranks(placements_of(attempts))
    fold.take(_events(connection, min(since, stop.since), now + (_AFTERMATH if at is None else timedelta())))
    fold.take(_newest_work(connection, since, now))
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


def _newest_work(connection: sa.Connection, since: datetime, until: datetime) -> list[Event]:
    """Of each run when it last worked, if a line tells the time: what it waited for before that came."""
    table = schema.events
    newest = sa.func.max(table.c.time, type_=schema.UtcTime())
    query = sa.select(table.c.run, newest).where(table.c.run.is_not(None), table.c.kind == WORK)
    query = query.where(table.c.time >= since, table.c.time <= until, table.c.time != table.c.received)
    rows = connection.execute(query.group_by(table.c.run)).all()
    return [Event(time, None, "training", WORK, attributes={"run": run}) for run, time in rows]


def _events(connection: sa.Connection, since: datetime, until: datetime) -> Iterator[Event]:
    window = EventWindow(since=since, until=until + timedelta(microseconds=1))
    table = schema.events
    kinds = connection.scalars(
        sa.select(table.c.kind).where(table.c.time >= since, table.c.time <= until).distinct()
    ).all()
    wanted = [kind for kind in kinds if kind not in _NO_SYMPTOMS]
    return read_events(connection, window, kinds=wanted) if wanted else iter(())

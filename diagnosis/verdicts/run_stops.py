"""Explains the stops of runs: of each attempt that ended badly the first verdict, kept where ledgers read it.

    explain_stops(engine, now)               # those that nobody has explained yet, or of which more came in since
    explain_stops(engine, now, {"llm-70b"})

It is what `foreshock diagnose --run R --at END` names first: one question, one answer, whoever asks.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.stop import ended
from store.database.connections import writing
from store.events.ledger_intake import LATE, LateReport, read_late
from store.records.hostlist import hosts
from store.records.job import Job
from store.records.verdict import Verdict
from store.runs.jobs import jobs_of_runs, read_jobs
from store.verdicts.run_stops import StopVerdict, save_stops, stop_times
from store.verdicts.verdict_log import verdicts_between

# A cause that began so long before a stop may be that of it.
_NEAR = timedelta(hours=6)
_PART = 50  # stops that are written at once


def explain_stops(engine: sa.Engine, now: datetime, runs: Collection[str] | None = None) -> int:
    """Explain what waits for it, of all runs or some; returns how many stops were."""
    with engine.connect() as connection:
        waiting = _waiting(connection, now, None if runs is None else sorted(runs))
    for first in range(0, len(waiting), _PART):
        with engine.connect() as connection:
            found = list(_explained(connection, waiting[first : first + _PART], now))
        with writing(engine).begin() as connection:
            save_stops(connection, found)
    return len(waiting)


def _waiting(connection: sa.Connection, now: datetime, runs: Sequence[str] | None) -> list[Job]:
    """The attempts that ended badly, and whose verdict is missing or was made before all was in."""
    if runs is None:
        jobs = read_jobs(connection)
    else:
        jobs = [job for own in jobs_of_runs(connection, runs).values() for job in own]
    made = stop_times(connection, runs)
    _rows, late = read_late(connection)
    return [job for job in ended([job for job in jobs if job.run and job.start]) if _waits(job, made, late, now)]


def _waits(job: Job, made: dict[tuple[str, datetime], datetime], late: Sequence[LateReport], now: datetime) -> bool:
    if job.end is None:
        return False
    before = made.get((job.run, job.end))
    if before is None or before < job.end + LATE <= now:  # all is in: once more, for good
        return True
    near = [one for one in late if one.since <= job.end + LATE and one.until >= job.end - _NEAR]
    return bool(near) and not hosts(job.node_list).isdisjoint(one.node for one in near)


def _explained(connection: sa.Connection, jobs: Iterable[Job], now: datetime) -> Iterator[StopVerdict]:
    """The first verdict on each stop, with the id of the one that is held of the same cause."""
    # All of the search is behind these: whoever only accounts what is explained already needs none of it.
    from diagnosis.causes.explanation import explain
    from diagnosis.causes.stored_scene import read_scene
    from diagnosis.causes.suspects import ReachIndex
    from diagnosis.graph.stored_graph import GraphHistory
    from diagnosis.verdicts.stake import read_stakes, with_stake

    graphs, reach = GraphHistory(connection), None
    for end, job in sorted(((job.end, job) for job in jobs if job.end is not None), key=lambda one: one[0]):
        scene = read_scene(connection, job.run, end, graphs.at(end))
        if scene is None:
            continue
        reach = reach if reach is not None and reach.graph is scene.graph else ReachIndex(scene.graph)
        verdicts = explain(scene, reach=reach)
        if verdicts:
            first = with_stake(verdicts[0], read_stakes(connection, scene.jobs, end))
            yield StopVerdict(job.run, end, now, _under_stored_id(connection, first, end))


def _under_stored_id(connection: sa.Connection, first: Verdict, end: datetime) -> Verdict:
    """The verdict under the id of the stored one that names the same cause of that time."""
    same = [
        one
        for one in verdicts_between(connection, end - _NEAR, end + LATE)
        if (one.cause_class, one.name) == (first.cause_class, first.name)
    ]
    return replace(first, id=same[-1].id) if same else first

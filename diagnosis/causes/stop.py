"""A stop: the moment at which a run ceased to get on, and the window in which its cause must lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.records.hostlist import hosts
from store.records.job import Job
from store.runs.jobs import read_jobs
from store.tables import schema

# What a job is called that no scheduler tells of: this, and the node that its program failed on.
_UNTOLD_JOB = "a job on "
ENDED_WELL = ("COMPLETED", "RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "CONFIGURING")
# Without a training log nobody knows when the work stopped; a collective times out after 10 to 30 minutes (FIELD C).
BLIND_WINDOW = timedelta(minutes=30)
# The fault may be logged a little before the last line is printed, and the clocks of nodes differ.
MARGIN = timedelta(seconds=60)
# What programs say when something keeps them from working.
_PROGRAM_SIGNS = ("training_error", "straggler", "rank_missing", "rank_slow", "node_slow", "numbers_wrong")
# Ranks that wait in a collective: no incident yet.
_WAITS = "collective_wait"
# A cause that lies further back was survived until then.
LONGEST = timedelta(hours=6)
# A running job that printed nothing for so long, and for so many of its own paces, hangs.
_STALLED, _STALLED_PACES = timedelta(minutes=5), 10
# The end of a job that has none.
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
# Running jobs that are looked at for one that hangs, the largest first, and iterations that tell a pace.
_MOST_RUNNING, _PACES = 64, 12


def untold_job(node: str) -> str:
    """The name of a job on a node that no scheduler tells of."""
    return f"{_UNTOLD_JOB}{node}"


def is_untold(job: str) -> bool:
    """Whether a job is called so."""
    return job.startswith(_UNTOLD_JOB)


@dataclass(frozen=True, slots=True)
class Stoppage:
    """What is to be explained. `last_work` = the last sign of progress; `nodes` None = any node of the cluster."""

    run: str | None
    last_work: datetime
    end: datetime
    nodes: frozenset[str] | None

    @property
    def since(self) -> datetime:
        """From when on a cause may lie."""
        return max(self.last_work - MARGIN, self.end - LONGEST)


def stop_of(connection: sa.Connection, run: str | None, at: datetime | None) -> Stoppage | None:
    """What stopped: the newest attempt that ended badly (of a run, by `at`), else whatever happened before `at`.

    Of a run the newest attempt that made iterations counts, where one did: a start that failed does not hide why the
    work stopped. A run that was running at `at`, or runs now, is looked at as of then. Without `at` a job that still
    runs by its books and does not get on counts as stopped. None where the store knows nothing that could be explained.
    """
    jobs = [job for job in read_jobs(connection, run) if job.start is not None and (at is None or job.start <= at)]
    if at is not None:
        running = [job for job in jobs if (job.end is None or job.end >= at) and (run is not None)]
        if running:
            return _of_job(connection, running[-1], at)
    ended = [job for job in jobs if _ended_badly(job) and (at is None or (job.end is not None and job.end <= at))]
    newest = max(ended, key=_end_of, default=None)
    at_work = _at_work(connection, jobs) if run is not None else frozenset()
    worked = max((job for job in ended if (job.job_id, job.start) in at_work), key=_end_of, default=None)
    newest = worked or newest
    if at is None:
        hanging = _hanging(connection, jobs, newest)
        if hanging is not None:
            return hanging
    moment = at or _newest_sign(connection)
    is_on = bool(jobs) and jobs[-1].end is None and (worked is None or (jobs[-1].job_id, jobs[-1].start) in at_work)
    if run is not None and at is None and moment is not None and is_on:
        return _of_job(connection, jobs[-1], max(moment, jobs[-1].start or moment))
    if newest is not None and (run is not None or moment is None or moment - _end_of(newest) <= BLIND_WINDOW):
        return _of_job(connection, newest, _end_of(newest))
    return None if run is not None or moment is None else Stoppage(None, moment - BLIND_WINDOW, moment, None)


def _hanging(connection: sa.Connection, jobs: Sequence[Job], ended: Job | None) -> Stoppage | None:
    """The largest running job that complains or gets on no more, unless one as large ended badly after that."""
    clock = connection.scalar(sa.select(sa.func.max(schema.incidents.c.end, type_=schema.UtcTime())))
    running = [job for job in jobs if job.end is None and job.state.startswith("RUNNING")]
    running.sort(key=lambda job: (-(job.nodes or 0), job.job_id))
    for job in running[:_MOST_RUNNING]:
        found = _stalled(connection, job, clock)
        if found is None:
            continue
        is_news = ended is None or found.end > _end_of(ended) or (job.nodes or 0) > (ended.nodes or 0)
        return found if is_news else None
    return None


def _stalled(connection: sa.Connection, job: Job, clock: datetime | None) -> Stoppage | None:
    """The stop of a job that runs by its books: it said what is wrong after its last progress, or says nothing more."""
    table = schema.events
    of_run = sa.and_(table.c.run == job.run, table.c.time >= job.start, table.c.time != table.c.received)
    query = sa.select(table.c.time).where(of_run, table.c.kind == "iteration").order_by(table.c.time.desc())
    times = connection.scalars(query.limit(_PACES)).all()
    if not times:
        return None
    wrong = sa.select(sa.func.max(table.c.time, type_=schema.UtcTime())).where(
        of_run, table.c.time > times[0], table.c.severity.in_(("error", "fatal"))
    )
    complaint = connection.scalar(wrong)
    pace = (times[0] - times[-1]) / max(1, len(times) - 1)
    silent_until = None if clock is None or clock - times[0] <= max(_STALLED, _STALLED_PACES * pace) else clock
    end = max((moment for moment in (complaint, silent_until) if moment is not None), default=None)
    return None if end is None else Stoppage(job.run, times[0], end, hosts(job.node_list))


def _ended_badly(job: Job) -> bool:
    return job.end is not None and not job.state.startswith(ENDED_WELL)


def _end_of(job: Job) -> datetime:
    if job.end is None:
        raise ValueError(f"job {job.job_id} has no end")
    return job.end


def _of_job(connection: sa.Connection, job: Job, end: datetime) -> Stoppage:
    """The stop of an attempt: between its last printed iteration and `end`."""
    start = job.start or end
    last = _last_iteration(connection, job, end)
    return Stoppage(job.run, last or max(start, end - BLIND_WINDOW), end, hosts(job.node_list))


def _last_iteration(connection: sa.Connection, job: Job, end: datetime) -> datetime | None:
    """When an attempt printed its last iteration, by `end`."""
    table = schema.events
    query = sa.select(sa.func.max(table.c.time, type_=schema.UtcTime())).where(
        table.c.run == job.run,
        table.c.kind == "iteration",
        table.c.time >= job.start,
        table.c.time <= end,
        table.c.time != table.c.received,  # stored with the moment of receipt: the line bears no time
    )
    found: datetime | None = connection.scalar(query)
    return found


def _at_work(connection: sa.Connection, attempts: Sequence[Job]) -> frozenset[tuple[str, datetime | None]]:
    """Number and start of the attempts of a run that made iterations: one question, however often it was started."""
    if not attempts:
        return frozenset()
    run, jobs, events = attempts[0].run, schema.jobs.c, schema.events.c
    since = min(job.start for job in attempts if job.start is not None)
    until = max(job.end or _NEVER for job in attempts)
    printed = sa.exists(
        sa.select(sa.literal(1)).where(
            events.run == run,
            events.kind == "iteration",
            events.time.between(since, until),  # as values, by which the database leaves out other days
            events.time >= jobs.start,
            events.time <= sa.func.coalesce(jobs.end, sa.literal(_NEVER, schema.UtcTime())),
            events.time != events.received,  # stored with the moment of receipt: the line bears no time
        )
    )
    query = sa.select(jobs.job_id, jobs.start).where(jobs.run == run, jobs.start.is_not(None), printed)
    return frozenset((job_id, start) for job_id, start in connection.execute(query))


def starts_without_work(connection: sa.Connection, stop: Stoppage) -> list[Job]:
    """The attempts of a run after its stop that made no iteration, the newest first: ended badly, or still on.

    None where the attempt that stopped made none itself: then nobody knows of any of the run.
    """
    if stop.run is None:
        return []
    jobs = [job for job in read_jobs(connection, stop.run) if job.start is not None]
    at_work = _at_work(connection, jobs)
    if not any(job.end == stop.end and (job.job_id, job.start) in at_work for job in jobs):
        return []
    later = [job for job in jobs if (job.start or stop.end) >= stop.end and (job.end is None or _ended_badly(job))]
    found = [job for job in later if (job.job_id, job.start) not in at_work]
    return sorted(found, key=lambda job: (job.start or stop.end, job.job_id), reverse=True)


def _newest_sign(connection: sa.Connection) -> datetime | None:
    """When something was last seen that may need an explanation: an incident, a program's own word of trouble."""
    events = schema.events
    newest = [connection.scalar(sa.select(sa.func.max(schema.incidents.c.end, type_=schema.UtcTime())))]
    query = sa.select(sa.func.max(events.c.time, type_=schema.UtcTime()))
    newest += [connection.scalar(query.where(events.c.kind == kind)) for kind in _PROGRAM_SIGNS]
    known = max((moment for moment in newest if moment is not None), default=None)
    waits: datetime | None = connection.scalar(query.where(events.c.kind == _WAITS)) if known is None else None
    return known or waits


def ended(jobs: Sequence[Job]) -> list[Job]:
    """The attempts that ended badly, oldest first."""
    return sorted((job for job in jobs if _ended_badly(job)), key=_end_of)

"""What is at stake where a cause stops the work: the jobs that run on its nodes, and the GPU-hours that they lose.

    gpu_hours_at_stake = sum over its running jobs of GPUs of the job [1] x hours since its last save [h]

The last save is that of a checkpoint, or the job's start where it has saved nothing (or nobody tells of its saves):
what was done since then is lost if it stops now. A node whose GPUs the inventory does not count has none here: the
figure is a floor, never a guess.

A job suffers that ran when the last new sign of the cause came, and has not begun anew since: it runs, or it ended
badly and waits. What begins after the last sign gets on beside the cause, or shows a sign of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.scene import REACH, SceneJob, scene_job
from diagnosis.causes.stop import ENDED_WELL, is_untold
from store.events.event_pages import event_of
from store.records.event import Event
from store.records.job import Job
from store.records.verdict import Verdict
from store.runs.jobs import read_jobs
from store.tables import schema
from store.verdicts.verdict_log import STANDING_STATES

_EVENTS = schema.events
# A save is found torn no later than this after the job's end; so many saves are looked at.
_FOUND_TORN = timedelta(minutes=15)
_SAVES = 100
# Jobs that ended so lately may be what a fault stopped.
_LATELY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class StakeTable:
    """The jobs with what each would lose, looked up by node."""

    jobs: Mapping[str, tuple[SceneJob, float]]  # by job id: it, and GPU-hours since the last save
    by_node: Mapping[str, tuple[str, ...]]  # ids of the jobs on it
    begun: Mapping[str, datetime]  # of each run, when its attempt began: the first that runs, else the newest

    def of(self, nodes: Iterable[str], signs: tuple[datetime, datetime]) -> tuple[set[str], float]:
        """The runs on some nodes that suffer, and the GPU-hours that these would lose, each job counted whole and once.

        `signs`: when the first and the last sign of the cause came.
        """
        near = {job for node in nodes for job in self.by_node.get(node, ())}
        first, last = signs
        found = [(job, hours) for job, hours in map(self.jobs.__getitem__, near) if job.start <= last]
        found = [one for one in found if one[0].end is None or one[0].end >= first]
        found = [one for one in found if self.begun[one[0].run] <= one[0].start]
        return {job.run for job, _ in found}, sum(hours for _, hours in found)

    def began_after(self, run: str, moment: datetime) -> bool:
        """Whether a run has begun anew since."""
        return run in self.begun and self.begun[run] > moment


def stake_table(
    jobs: Sequence[SceneJob], gpus: Mapping[str, int], saved: Mapping[str, datetime], now: datetime
) -> StakeTable:
    """The table as of a moment.

    Args:
        gpus: of each node, as the inventory counts them.
        saved: of each run, when its newest checkpoint was saved.
    """
    found: dict[str, tuple[SceneJob, float]] = {}
    by_node: dict[str, list[str]] = defaultdict(list)
    runs = [job for job in jobs if not _is_over(job, now)]
    begun = {job.run: job.start for job in sorted(jobs, key=_start_of)}
    begun |= {job.run: job.start for job in sorted(runs, key=_start_of, reverse=True)}
    for job in jobs:
        is_over = _is_over(job, now)
        if is_over and job.state.startswith(ENDED_WELL):
            continue
        last = max(job.start, saved.get(job.run, job.start))
        hours = 0.0 if is_over else max(0.0, (now - last).total_seconds() / 3600.0)
        found[job.job_id] = (job, sum(gpus.get(node, 0) for node in job.nodes) * hours)
        for node in job.nodes:
            by_node[node].append(job.job_id)
    return StakeTable(found, {node: tuple(ids) for node, ids in by_node.items()}, begun)


def _is_over(job: SceneJob, now: datetime) -> bool:
    return job.end is not None and job.end < now


def _start_of(job: SceneJob) -> datetime:
    return job.start


def recent_jobs(connection: sa.Connection, now: datetime) -> list[Job]:
    """The jobs that run, or ended so lately that a fault may have stopped them."""
    return read_jobs(connection, window=(now - _LATELY, now + timedelta(microseconds=1)))


def with_stakes_now(connection: sa.Connection, verdicts: Sequence[Verdict], now: datetime) -> list[Verdict]:
    """Verdicts as they are held: those that stand with what is at stake now, for each save lowers it."""
    runs = {run for one in verdicts if one.state in STANDING_STATES for run in one.jobs}
    if not runs:
        return list(verdicts)
    known = (scene_job(job) for job in recent_jobs(connection, now) if job.run in runs)
    table = read_stakes(connection, [job for job in known if job is not None], now)
    return [with_stake(one, table) if one.jobs and one.state in STANDING_STATES else one for one in verdicts]


def read_stakes(connection: sa.Connection, jobs: Sequence[SceneJob], moment: datetime) -> StakeTable:
    """The table of the jobs that ran at a moment, or ended then, by what the store knows."""
    return stake_table(jobs, gpus_of_nodes(connection), newest_saves(connection, moment), moment)


def gpus_of_nodes(connection: sa.Connection) -> dict[str, int]:
    """How many GPUs each node has, of those of which it is known."""
    nodes = schema.nodes.c
    return dict(connection.execute(sa.select(nodes.node, nodes.gpus).where(nodes.gpus.is_not(None))).all())


def newest_saves(connection: sa.Connection, moment: datetime) -> dict[str, datetime]:
    """Of each run, when its newest checkpoint of the day before a moment was saved."""
    newest = sa.func.max(_EVENTS.c.time, type_=schema.UtcTime())
    query = sa.select(_EVENTS.c.run, newest).where(_EVENTS.c.kind == "checkpoint_save", _EVENTS.c.run.is_not(None))
    query = query.where(_EVENTS.c.time >= moment - REACH, _EVENTS.c.time <= moment)
    return {row.run: row[1] for row in connection.execute(query.group_by(_EVENTS.c.run))}


def saves_at(connection: sa.Connection, run: str, moment: datetime) -> tuple[Event | None, Event | None]:
    """Of a run's checkpoints at a moment the newest that is whole, and a later one that was found torn.

    It is found torn once it is at rest: minutes after the job has ended. What was told of it before is that save.
    """
    kinds = ("checkpoint_save", "checkpoint_torn")
    within = _EVENTS.c.time.between(moment - REACH, moment + _FOUND_TORN)
    query = sa.select(_EVENTS).where(_EVENTS.c.run == run, _EVENTS.c.kind.in_(kinds), within)
    rows = connection.execute(query.order_by(_EVENTS.c.time.desc()).limit(_SAVES)).all()
    saves = [(row.time, event_of(row)) for row in rows if row.kind == "checkpoint_save" and row.time <= moment]
    found, torn = next(((row.time, event_of(row)) for row in rows if row.kind == "checkpoint_torn"), (moment, None))
    if torn is not None:
        number = torn.attributes.get("iteration")
        saves = [one for one in saves if one[0] > found or one[1].attributes.get("iteration") != number]
    at, kept = next(iter(saves), (None, None))
    return kept, None if at is not None and at > found else torn


def with_stake(verdict: Verdict, table: StakeTable) -> Verdict:
    """A verdict with the jobs that suffer, and the GPU-hours at stake, to a tenth.

    Nobody is told to restart a job where jobs are told of and none suffers: it was done.
    """
    nodes = {*verdict.nodes, *verdict.victims, *([verdict.node] if verdict.node else [])}
    newest = verdict.newest or verdict.last or verdict.since
    runs, hours = table.of(nodes, (verdict.since, newest))
    runs |= {run for run in verdict.jobs if not table.began_after(run, newest)}
    is_told = bool(verdict.jobs or table.begun) and not is_untold(verdict.name)
    is_done = verdict.action == "restart_app" and is_told and not runs
    action = "none" if is_done else verdict.action
    return replace(verdict, jobs=tuple(sorted(runs)), gpu_hours_at_stake=round(hours, 1), action=action)

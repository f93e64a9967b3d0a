"""What is at stake where a cause stops the work: the jobs that run on its nodes, and the GPU-hours that they lose.

    gpu_hours_at_stake = sum over its running jobs of GPUs of the job [1] x hours since its last save [h]

The last save is that of a checkpoint, or the job's start where it has saved nothing (or nobody tells of its saves):
what was done since then is lost if it stops now. A node whose GPUs the inventory does not count has none here: the
figure is a floor, never a guess.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.scene import REACH, SceneJob
from store.events.event_pages import event_of
from store.records.event import Event
from store.records.verdict import Verdict
from store.tables import schema

_EVENTS = schema.events
# A save is found torn no later than this after the job's end; so many saves are looked at.
_FOUND_TORN = timedelta(minutes=15)
_SAVES = 100


@dataclass(frozen=True, slots=True)
class StakeTable:
    """The running jobs with what each would lose, looked up by node."""

    jobs: Mapping[str, tuple[str, float]]  # by job id: its run, GPU-hours since the last save
    by_node: Mapping[str, tuple[str, ...]]  # ids of the jobs on it

    def of(self, nodes: Iterable[str]) -> tuple[tuple[str, ...], float]:
        """The runs on some nodes, and the GPU-hours that these would lose, each job counted whole and once."""
        found = {job for node in nodes for job in self.by_node.get(node, ())}
        return tuple(sorted({self.jobs[job][0] for job in found})), sum(self.jobs[job][1] for job in found)


def stake_table(
    jobs: Sequence[SceneJob], gpus: Mapping[str, int], saved: Mapping[str, datetime], now: datetime
) -> StakeTable:
    """The table as of a moment.

    Args:
        gpus: of each node, as the inventory counts them.
        saved: of each run, when its newest checkpoint was saved.
    """
    found: dict[str, tuple[str, float]] = {}
    by_node: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        if job.end is not None and job.end < now:
            continue
        last = max(job.start, saved.get(job.run, job.start))
        hours = max(0.0, (now - last).total_seconds() / 3600.0)
        found[job.job_id] = (job.run, sum(gpus.get(node, 0) for node in job.nodes) * hours)
        for node in job.nodes:
            by_node[node].append(job.job_id)
    return StakeTable(found, {node: tuple(ids) for node, ids in by_node.items()})


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
    """A verdict with the jobs on its nodes, and the GPU-hours at stake, to a tenth."""
    nodes = {*verdict.nodes, *verdict.victims, *([verdict.node] if verdict.node else [])}
    runs, hours = table.of(nodes)
    return replace(verdict, jobs=tuple(sorted({*verdict.jobs, *runs})), gpu_hours_at_stake=round(hours, 1))

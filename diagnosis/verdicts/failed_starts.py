"""Starts of a run after its stop that never came to work: what each failed by, where that is a fault of its own.

    failed_starts(connection, scene.stop, verdicts[0])
    -> [FailedStart(job 12, FAILED at 12:40, verdict "gpu gpu-003/0000:0f:00.0 ..."), ...]    the newest first

They do not hide why the run stopped, and are told beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import Scene
from diagnosis.causes.stop import Stoppage, starts_without_work
from diagnosis.causes.stored_scene import read_scene
from diagnosis.causes.verdict_words import LIKELY
from diagnosis.verdicts.stake import read_stakes, with_stake
from store.records.job import Job
from store.records.verdict import Verdict

# Starts of a run that tries again and again which are looked into; the others are counted.
MOST_STARTS = 3
# Clocks of nodes and of the scheduler differ by so much.
_MARGIN = timedelta(minutes=1)
_NO_FAULT = frozenset({"unknown", "planned"})


@dataclass(frozen=True, slots=True)
class FailedStart:
    """An attempt without an iteration. `verdict`: a fault of its own; `is_again`: what the run stopped by stands."""

    job: Job
    verdict: Verdict | None = None
    is_again: bool = False


def failed_starts(connection: sa.Connection, stop: Stoppage, first: Verdict | None) -> list[FailedStart]:
    """The starts after a stop that never came to work, the newest first. `first`: what the stop is put down to."""
    return [
        _explained(connection, job, first) if place < MOST_STARTS and job.end is not None else FailedStart(job)
        for place, job in enumerate(starts_without_work(connection, stop))
    ]


def _explained(connection: sa.Connection, job: Job, first: Verdict | None) -> FailedStart:
    scene = read_scene(connection, job.run, job.end)
    found = _of(scene, job) if scene is not None else []
    if not found or scene is None or scene.stop is None:
        return FailedStart(job)
    own = with_stake(found[0], read_stakes(connection, scene.jobs, scene.stop.end))
    if first is not None and (own.cause_class, own.name, own.node) == (first.cause_class, first.name, first.node):
        return FailedStart(job, is_again=True)
    return FailedStart(job, own)


def _of(scene: Scene, job: Job) -> Sequence[Verdict]:
    """What is likely, and began in the life of an attempt; the likeliest alone counts."""
    since = (job.start or scene.now) - _MARGIN
    likeliest = explain(scene)[:1]
    return [
        one
        for one in likeliest
        if one.probability >= LIKELY and one.cause_class not in _NO_FAULT and (one.last or one.since) >= since
    ]

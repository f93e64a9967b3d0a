"""Cycles of NVRx as attempts: starts of the worker processes within one allocation of the scheduler.

    with_cycles(jobs, cycles)      # each job that cycles tell of, cut where its processes were started anew

The nodes stay the job's while the processes start again, so the time from one cycle's end to the next one's first
iteration is start-up, no waiting. A cycle bears no reason: that another follows tells that it failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from goodput.wall_time.attempts import RESTARTED
from store.records.event import Attribute, Event
from store.records.job import Job

# The clocks of the scheduler and of the rendezvous host differ by no more.
_SLACK = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Cycle:
    """One start of a job's processes; `end` None = it goes on, or nobody wrote its end."""

    job: str
    attempt: int
    number: int
    start: datetime
    end: datetime | None
    nodes: str


def cycles_of(events: Sequence[Event]) -> list[Cycle]:
    """The cycles that NVRx's events tell, in order: a `cycle_start`, and where it has ended its `cycle_end`."""
    found: dict[tuple[str, int, int], Cycle] = {}
    ends: dict[tuple[str, int, int], datetime] = {}
    for event in events:
        key = _key(event.attributes)
        if event.time is None or event.kind not in ("cycle_start", "cycle_end"):
            continue
        if event.kind == "cycle_end":
            ends[key] = event.time
        else:
            found[key] = Cycle(*key, event.time, None, str(event.attributes.get("nodes") or ""))
    cycles = [replace(cycle, end=ends.get(key)) for key, cycle in found.items()]
    return sorted(cycles, key=lambda cycle: (cycle.start, cycle.attempt, cycle.number))


def _key(reported: Mapping[str, Attribute]) -> tuple[str, int, int]:
    attempt, cycle = reported.get("attempt"), reported.get("cycle")
    return (
        str(reported.get("job") or reported.get("run") or ""),
        attempt if isinstance(attempt, int) else 0,
        cycle if isinstance(cycle, int) else 0,
    )


def with_cycles(jobs: Sequence[Job], cycles: Sequence[Cycle]) -> list[Job]:
    """The jobs with their cycles as attempts of their own; cycles that no job covers are jobs by themselves."""
    if not cycles:
        return list(jobs)
    own: dict[int, list[Cycle]] = {}
    alone: list[Cycle] = []
    for cycle in cycles:
        place = next((i for i, job in enumerate(jobs) if _covers(job, cycle)), None)
        if place is None:
            alone.append(cycle)
        else:
            own.setdefault(place, []).append(cycle)
    found = [part for i, job in enumerate(jobs) for part in _parts(job, own.get(i, []))]
    return found + _by_themselves(alone)


def _covers(job: Job, cycle: Cycle) -> bool:
    if job.job_id != cycle.job or job.start is None:
        return False
    return job.start - _SLACK <= cycle.start and (job.end is None or cycle.start <= job.end)


def _parts(job: Job, cycles: Sequence[Cycle]) -> list[Job]:
    """A job cut at the ends of its cycles."""
    parts = []
    for place, cycle in enumerate(cycles):
        last = place + 1 == len(cycles)
        begin = job.start if place == 0 else _end_of(cycles[place - 1], cycle)
        part = replace(
            job,
            submit=job.submit if place == 0 else None,
            start=begin,
            end=job.end if last else _end_of(cycle, cycles[place + 1]),
            state=job.state if last else RESTARTED,
            node_list=cycle.nodes or job.node_list,
        )
        parts.append(part)
    return parts or [job]


def _end_of(cycle: Cycle, following: Cycle) -> datetime:
    """When a cycle ended; one whose end nobody wrote lasted no longer than to the next one's start."""
    return following.start if cycle.end is None else min(cycle.end, following.start)


def _by_themselves(cycles: Sequence[Cycle]) -> list[Job]:
    """Cycles without the scheduler's books: each an attempt, within one allocation without a wait."""
    found = []
    for place, cycle in enumerate(cycles):
        before = cycles[place - 1] if place else None
        after = cycles[place + 1] if place + 1 < len(cycles) else None
        same = before is not None and (before.job, before.attempt) == (cycle.job, cycle.attempt)
        end = cycle.end if after is None else _end_of(cycle, after)
        state = RESTARTED if after is not None else "RUNNING" if end is None else "COMPLETED"
        found.append(
            Job(
                job_id=f"{cycle.job}.{cycle.attempt}.{cycle.number}",
                run=cycle.job,
                state=state,
                submit=None,
                start=_end_of(before, cycle) if same and before is not None else cycle.start,
                end=end,
                nodes=None,
                node_list=cycle.nodes,
            )
        )
    return found

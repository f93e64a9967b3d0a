"""A GPU that comes up again and again with wrong numbers: counted per device, older ones for less.

    events = recurring(connection, now)

One result that its repetition did not give may be the program's (a step that is not the same twice), and one NaN mostly
is. A device that two occasions name is a suspect of its own. A report counts 1, a NaN a quarter, an error that stays 2,
a test of the vendor's that computes or copies and then compares 1; each halves in 14 days: Google tells of one such
event every one to two weeks on a whole cluster (FIELD E), so two on one device within weeks are no chance. A user can
write a training log, of his own job's nodes: it makes a warning, and no hold.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.hangs.placement import RankPlacements, placements_of
from diagnosis.incidents.intake import note_found
from store.events.event_pages import event_of
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning
from store.records.job import Job
from store.runs.jobs import read_jobs
from store.tables import schema

KIND = "numbers_wrong"
_ERROR, _TEST = "training_error", "health_check_failed"
_SOURCE = "corruption"
HALF_LIFE = timedelta(days=14)
LOOK_BACK = timedelta(days=56)
# Two reports of the last day.
ENOUGH = 1.9
_NAN_WEIGHT = 0.25
_WEIGHTS = {
    "replay_mismatch": 1.0,
    "unexpected_result": 1.0,
    "transient_error": 1.0,
    "persistent_error": 2.0,
    "nan_found": _NAN_WEIGHT,
}
# Tests of NVIDIA's `dcgmi diag` that found other numbers than they had written or computed (DCGM's dcgm_errors.h).
_TESTS = frozenset(
    {
        "DCGM_FR_FAULTY_MEMORY",
        "DCGM_FR_MEMORY_MISMATCH",
        "DCGM_FR_L1TAG_MISCOMPARE",
        "DCGM_FR_NAN_VALUE",
        "DCGM_FR_BROKEN_P2P_MEMORY_DEVICE",
        "DCGM_FR_BROKEN_P2P_WRITER_DEVICE",
    }
)
_TEST_WEIGHT = 1.0
# What many ranks report within so long is one occasion.
_ONE_OCCASION = timedelta(minutes=10)
# Reports that are read at once, the newest.
_MOST = 5_000
_EVENTS = schema.events


@dataclass(slots=True)
class WrongNumbers:
    """What was told of one GPU: when, by which event, how much each occasion counts."""

    node: str
    device: Device
    occasions: list[tuple[datetime, float]] = field(default_factory=list)
    runs: set[str] = field(default_factory=set)

    def add(self, time: datetime, weight: float, run: str | None) -> None:
        """One report; those of one occasion count as the gravest of them."""
        if run is not None:
            self.runs.add(run)
        if self.occasions and time - self.occasions[-1][0] <= _ONE_OCCASION:
            self.occasions[-1] = (self.occasions[-1][0], max(self.occasions[-1][1], weight))
        else:
            self.occasions.append((time, weight))

    def weight(self, now: datetime) -> float:
        """What all of them come to as of a moment."""
        return sum(weight * float(0.5 ** max(0.0, (now - time) / HALF_LIFE)) for time, weight in self.occasions)

    def event(self, now: datetime) -> Event:
        """What is told of it, once for each further occasion."""
        last = self.occasions[-1][0]
        count, runs = len(self.occasions), len(self.runs)
        of_runs = f" of {runs} runs" if runs > 1 else ""
        message = (
            f"{self.device.words()} computed wrong numbers {count} times{of_runs} since {self.occasions[0][0]:%Y-%m-%d}"
        )
        where = f"{KIND} {self.node} {self.device.key()} {last.isoformat()}"
        event = Event(
            time=now,
            node=self.node,
            source=_SOURCE,
            kind=KIND,
            device=self.device,
            message=message,
            attributes={"count": count, "runs": runs, "weight": round(self.weight(now), 2)},
            id=hashlib.blake2b(where.encode(), digest_size=12).hexdigest(),
        )
        return with_kind_meaning(event)


def recurring(connection: sa.Connection, now: datetime) -> list[Event]:
    """The GPUs that are named often enough as of a moment, as events: the same until there is a further occasion."""
    since = now - LOOK_BACK
    query = sa.select(_EVENTS).where(_is_report(), _EVENTS.c.time >= since, _EVENTS.c.time <= now)
    query = query.order_by(_EVENTS.c.time.desc()).limit(_MOST)
    reports = [event_of(row) for row in connection.execute(query)][::-1]
    if not reports:
        return []
    jobs = read_jobs(connection, window=(since, now))
    found = wrong_numbers(reports, jobs)
    return [one.event(now) for one in found if one.weight(now) >= ENOUGH]


def _is_report() -> sa.ColumnElement[bool]:
    """Whether an event tells of wrong numbers."""
    told = ((_ERROR, "error", sorted(_WEIGHTS)), (_TEST, "check", sorted(_TESTS)))
    of = _EVENTS.c
    return sa.or_(*(sa.and_(of.kind == kind, of.attributes[key].as_string().in_(names)) for kind, key, names in told))


def wrong_numbers(reports: Sequence[Event], jobs: Sequence[Job]) -> list[WrongNumbers]:
    """What reports, the oldest first, tell of each GPU. One that names none, by rank or by itself, counts for none."""
    found: dict[tuple[str, str], WrongNumbers] = {}
    for event in reports:
        placements = placements_of(_running(jobs, event))
        for node, device in _accused(event, placements):
            one = found.setdefault((node, device.key()), WrongNumbers(node, device))
            if event.time is not None:
                weight = _TEST_WEIGHT if event.kind == _TEST else _WEIGHTS[str(event.attributes.get("error"))]
                one.add(event.time, weight, event.run())
    return [one for one in found.values() if one.occasions]


def _running(jobs: Sequence[Job], event: Event) -> list[Job]:
    """The attempts of an event's run that ran then."""
    run, time = event.run(), event.time
    if time is None:
        return []
    begun = [job for job in jobs if job.run == run and job.start is not None and job.start <= time]
    return [job for job in begun if job.end is None or job.end >= time]


def _accused(event: Event, placements: RankPlacements) -> Iterator[tuple[str, Device]]:
    if event.kind == _TEST:
        if event.node is not None and event.device.type == "gpu" and not event.device.is_bare():
            yield event.node, event.device
        return
    rank, local = event.attributes.get("rank"), event.attributes.get("device")
    if event.node is not None and isinstance(local, int):
        yield event.node, Device(type="gpu", index=local)
        return
    placement = placements.of(event.run())
    if placement is not None and isinstance(rank, int):
        node, gpu = placement.place_of(rank)
        if node is not None and gpu is not None:
            yield node, Device(type="gpu", index=gpu)


def note_recurring(engine: sa.Engine, now: datetime) -> int:
    """Store what recurs as of a moment, for the incidents and verdicts to come; returns how much of it is new."""
    return note_found(engine, lambda connection: recurring(connection, now), now)


def note_last_recurring(engine: sa.Engine) -> int:
    """The same at the end of an archive that tells of wrong numbers; returns how much was found."""
    query = sa.select(sa.func.max(_EVENTS.c.time, type_=schema.UtcTime())).where(_is_report())
    with engine.connect() as connection:
        last = connection.scalar(query)
    return 0 if last is None else note_recurring(engine, last)

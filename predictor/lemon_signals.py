"""The signals of the repair list: what is counted of each node, and over which exposure it is compared.

They are Meta's seven (FIELD A1) as far as a store has them, and recurrences. `JUDGED` are compared with the fleet;
the others are told. What a store cannot know (which jobs were told to avoid a node) is replaced by what it can see: a
run that went on at once without a node that was up.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from predictor.history import Floats, Ints
from predictor.lemon_records import AFTER_END, BEFORE_END, MEMORY_D, WINDOW_D, Absence, Fault, JobEnd, Records, hosts_of

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Signal:
    """One judged signal: what one of it is called, and what it is counted over."""

    name: str
    noun: str
    per: str


JUDGED: tuple[Signal, ...] = (
    Signal("failures", "failure", f"{WINDOW_D} days"),
    Signal("failures_90d", "failure", f"{MEMORY_D} days"),
    Signal("fault_days", "day with a hardware fault", f"{WINDOW_D} days"),
    Signal("flap_days", "day with a lost link", f"{WINDOW_D} days"),
    Signal("single_job_failures", "failed one-node job", "one-node job"),
)


@dataclass(slots=True)
class Told:
    """What is known of one node within the window."""

    outages: list[Absence] = field(default_factory=list)
    stopped: list[JobEnd] = field(default_factory=list)  # multi-node jobs that its faults or outages ended
    alone: list[JobEnd] = field(default_factory=list)  # those of them that no outage of it explains
    faults: list[Fault] = field(default_factory=list)  # serious ones but for lost links
    flaps: list[Fault] = field(default_factory=list)
    remembered: list[Fault] = field(default_factory=list)  # serious ones of `MEMORY_D` but for lost links
    signs: list[Fault] = field(default_factory=list)  # faults that are not serious: row remaps, warnings
    recurrences: list[tuple[Fault, datetime, Fault]] = field(default_factory=list)  # before, end of repair, again
    failures_90d: int = 0
    repairs: list[Absence] = field(default_factory=list)  # all of `MEMORY_D`, planned ones too


@dataclass(frozen=True, slots=True)
class Counts:
    """Every node's counts and exposures of the judged signals; `told` is what they were counted from."""

    names: tuple[str, ...]
    told: Mapping[str, Told]
    count: Mapping[str, Ints]
    exposure: Mapping[str, Floats]


def count(records: Records) -> Counts:
    """Count everything, as of `records.at`."""
    told = {name: _told(records, name) for name in records.nodes}
    _blame(records, told)
    names = tuple(records.nodes)
    counts = {signal.name: np.zeros(len(names), dtype=np.int64) for signal in JUDGED}
    exposure = {signal.name: np.zeros(len(names)) for signal in JUDGED}
    for i, name in enumerate(names):
        one, single = told[name], records.single.get(name)
        counts["failures"][i] = len(one.outages) + len({job.end for job in one.alone})
        counts["failures_90d"][i] = one.failures_90d + len({job.end for job in one.alone})
        counts["fault_days"][i] = _days(one.faults, records.at)
        counts["flap_days"][i] = _days(one.flaps, records.at)
        counts["single_job_failures"][i] = len(single.failed) if single else 0
        exposure["failures"][i] = _served_days(records, name, records.first)
        exposure["failures_90d"][i] = _served_days(records, name, records.since)
        exposure["single_job_failures"][i] = single.ended if single else 0
    exposure["fault_days"] = exposure["flap_days"] = exposure["failures"]
    return Counts(names, told, counts, exposure)


def _told(records: Records, name: str) -> Told:
    absences = records.absences.get(name, ())
    bad = [absence for absence in absences if absence.failed]
    faults = records.faults.get(name, ())
    serious = [fault for fault in faults if fault.serious]
    return Told(
        outages=[absence for absence in bad if absence.start >= records.first],
        faults=[fault for fault in serious if fault.family != "link_flap"],
        flaps=[fault for fault in serious if fault.family == "link_flap"],
        signs=[fault for fault in faults if not fault.serious],
        failures_90d=len(bad),
        repairs=list(absences),
    )


def remember(told: Told, earlier: Sequence[Fault]) -> None:
    """Add what earlier faults say of a node: which part it was before, and what came back after a repair."""
    serious = sorted(
        [*(fault for fault in earlier if fault.serious), *told.faults, *told.flaps], key=lambda fault: fault.start
    )
    told.remembered = [fault for fault in serious if fault.family != "link_flap"]
    ends = sorted(absence.end for absence in told.repairs if absence.failed and absence.end is not None)
    recent = {fault.id for fault in (*told.faults, *told.flaps)}
    last: dict[tuple[str, str], Fault] = {}
    for fault in serious:
        before = last.get((fault.part, fault.what))
        if before is not None and fault.id in recent:
            ended = ends[bisect_left(ends, before.start) : bisect_left(ends, fault.start)]
            if ended:
                told.recurrences.append((before, ended[-1], fault))
        last[fault.part, fault.what] = fault


def _days(faults: Sequence[Fault], at: datetime) -> int:
    """On how many days there was one, in days before the moment: a burst is one day's."""
    return len({(at - fault.start) // _DAY for fault in faults})


def _served_days(records: Records, name: str, first: datetime) -> float:
    """For how long the node was in service since a moment, its time out left out."""
    node = records.nodes[name]
    begin = max(first, node.in_service_since or first)
    end = min(records.at, node.in_service_until or records.at)
    absences = records.absences.get(name, ())
    spans = (min(absence.end or end, end) - max(absence.start, begin) for absence in absences)
    out = sum((max(span, timedelta()) for span in spans), timedelta())
    return max((end - begin - out) / _DAY, 0.0)


def _blame(records: Records, told: Mapping[str, Told]) -> None:
    """Give every failed job of several nodes to the nodes of it that broke just then."""
    breaks = [(a.start, name, True) for name, one in told.items() for a in one.outages]
    breaks += [(f.start, name, False) for name, one in told.items() for f in (*one.faults, *one.flaps)]
    breaks.sort(key=lambda entry: entry[0])
    starts = [entry[0] for entry in breaks]
    kept: dict[str, frozenset[str]] = {}
    for job in records.jobs or ():
        near = breaks[bisect_left(starts, job.end - BEFORE_END) : bisect_right(starts, job.end + AFTER_END)]
        if not near:
            continue
        hosts = hosts_of(job, kept)
        blamed = {name for _, name, _ in near if name in hosts}
        out = {name for _, name, outage in near if outage}
        for name in blamed:
            told[name].stopped.append(job)
            if name not in out:
                told[name].alone.append(job)

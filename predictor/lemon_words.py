"""The repair list in an operator's words: one sentence a signal, with the ids behind it, and what to do next."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from predictor.lemon_parts import Part
from predictor.lemon_records import MEMORY_D, WINDOW_D, Absence, Fault, SingleJobs
from predictor.lemon_signals import Told

MAX_IDS = 20
_SHOWN_CODES = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """A node in one signal: its count, that of a mean node, how sure it is to be far worse, and how many times."""

    count: int
    expected: float
    probability: float
    multiple: float


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence and what it rests on: ids of events, incidents and jobs, newest last."""

    signal: str
    text: str
    events: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


def lines_of(
    told: Told,
    standing: Mapping[str, Standing],
    single: SingleJobs | None,
    outage_ids: Mapping[tuple[str, datetime], str],
) -> Iterator[Line]:
    """Every signal that says something, the gravest kind first."""
    if told.recurrences:
        yield _recurrence(told)
    if told.outages:
        last = told.outages[-1]
        text = (
            f"{_many(len(told.outages), 'unplanned outage')} in {WINDOW_D} days, "
            f"the last on {_day(last.start)} ({last.reason or 'no reason given'}); {_fleet(standing['failures'])}"
        )
        yield Line("failures", text, events=_events(told.outages, outage_ids))
    if standing["failures_90d"].count > standing["failures"].count:
        text = (
            f"{_many(standing['failures_90d'].count, 'failure')} in {MEMORY_D} days; {_fleet(standing['failures_90d'])}"
        )
        bad = [absence for absence in told.repairs if absence.failed]
        yield Line("failures_90d", text, events=_events(bad, outage_ids))
    yield from _of_jobs(told, standing, single)
    yield from _of_faults(told, standing)


def _events(outages: Sequence[Absence], ids: Mapping[tuple[str, datetime], str]) -> tuple[str, ...]:
    keys = [(absence.node, absence.start) for absence in outages]
    return tuple(ids[key] for key in keys if key in ids)[-MAX_IDS:]


def _recurrence(told: Told) -> Line:
    _before, ended, again = told.recurrences[-1]
    times = f", and {len(told.recurrences) - 1} more times like this" if len(told.recurrences) > 1 else ""
    return Line(
        "recurrences",
        f"{again.what} of {again.device.words(again.name)} came back on {_day(again.start)}, after the repair that "
        f"ended on {_day(ended)}{times}",
        incidents=_ids([fault for pair in told.recurrences for fault in (pair[0], pair[2])]),
    )


def _of_jobs(told: Told, standing: Mapping[str, Standing], single: SingleJobs | None) -> Iterator[Line]:
    if told.stopped:
        runs = ", ".join(sorted({job.run for job in told.stopped})[:3])
        yield Line(
            "multi_node_job_failures",
            f"{_many(len(told.stopped), 'job')} on several nodes failed as it broke ({runs})",
            jobs=tuple(job.job_id for job in told.stopped[-MAX_IDS:]),
        )
    if single is not None and single.failed:
        yield Line(
            "single_node_job_failures",
            f"{len(single.failed)} of {_many(single.ended, 'one-node job')} failed on it; "
            f"{_fleet(standing['single_job_failures'])}",
            jobs=single.failed[-MAX_IDS:],
        )


def _of_faults(told: Told, standing: Mapping[str, Standing]) -> Iterator[Line]:
    if told.faults:
        yield Line(
            "fault_days",
            f"hardware faults on {standing['fault_days'].count} of {WINDOW_D} days: {_codes(told.faults)}; "
            f"{_fleet(standing['fault_days'])}",
            incidents=_ids(told.faults),
        )
    if told.flaps:
        yield Line(
            "flap_days",
            f"lost a link {_times(len(told.flaps))}, on {standing['flap_days'].count} of {WINDOW_D} days; "
            f"{_fleet(standing['flap_days'])}",
            incidents=_ids(told.flaps),
        )
    if told.signs:
        yield Line("hardware_xids", f"lesser Xids: {_codes(told.signs)}", incidents=_ids(told.signs))


_DIAGNOSIS = "the vendor's diagnosis (NVIDIA: `dcgmi diag -r 4`)"


def next_step(part: Part | None, told: Told) -> str:
    """What to do with the node."""
    if part is None:
        if told.flaps and not told.faults and len(told.flaps) > len(told.outages):
            return "Clean and reseat the optics and cables of its links at both ends; exchange what flaps again."
        return (
            f"No single part stands out: take it out and test the whole machine ({_DIAGNOSIS}, memory, links, power); "
            "return it only if it passes."
        )
    where = part.words
    again = any(fault.part == part.faults[0].part for _, _, fault in told.recurrences)
    if part.device.type in ("port", "hca", "switch"):
        if again:
            return f"Exchange optic and cable of {where}: it failed again after a repair."
        return f"Clean and reseat optic and cable of {where} at both ends; exchange them if it flaps again."
    if again:
        return f"Exchange {where}: the same fault came back after a repair."
    if part.device.type in ("gpu", "npu", "nvswitch"):
        return f"Take the node out, run {_DIAGNOSIS} on {where}, and exchange it if that fails or the fault comes back."
    return f"Take the node out, test {where}, and exchange it if the fault shows again."


def _codes(faults: Sequence[Fault]) -> str:
    """`xid 79 (3), ecc_dbe (1)`."""
    found = Counter(fault.what for fault in faults).most_common()
    more = f" and {len(found) - _SHOWN_CODES} others" if len(found) > _SHOWN_CODES else ""
    return ", ".join(f"{what} ({times})" for what, times in found[:_SHOWN_CODES]) + more


def _ids(faults: Sequence[Fault]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fault.id for fault in faults))[-MAX_IDS:]


def _fleet(standing: Standing) -> str:
    return f"a node of this fleet has {standing.expected:.2g} on average"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"

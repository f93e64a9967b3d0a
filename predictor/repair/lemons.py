"""The repair list: which nodes should go to repair, because they fail more than chance allows in this fleet.

    report = repair_list(connection, at)
    report.items[0].node, report.items[0].next_step

A node is listed when, in one of the judged signals, it is likelier than not that its own rate is at least `TIMES` the
fleet's mean, and the list of that signal as a whole is expected to hold no more than `FALSE_SHARE` of nodes that are
not. Both are about rates against the fleet's own; no threshold is set in counts, so none has to fit a cluster.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.history.arrays import Bools, Floats
from predictor.repair.fleet_rate import Excess, excess
from predictor.repair.records import (
    MEMORY_D,
    TIMES,
    WINDOW_D,
    Downtime,
    NodeFault,
    RepairRecords,
    SingleJobs,
    earlier_faults,
    outage_ids,
    read_records,
)
from predictor.repair.signals import JUDGED, Counts, FaultyPart, NodeFindings, add_memory, count, culprit_of, identified
from store.plural import many
from store.records.node import Node

# The repair list in an operator's words: one sentence a signal, with the ids behind it, and what to do next.

MAX_IDS = 20
_SHOWN_CODES = 4


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """A node in one signal: its count, that of a mean node, how sure it is to be far worse, and how many times."""

    count: int
    expected: float
    probability: float
    multiple: float


@dataclass(frozen=True, slots=True)
class RepairReason:
    """A sentence and what it rests on: ids of events, incidents and jobs, newest last."""

    signal: str
    text: str
    events: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


def reasons_of(
    reported: NodeFindings,
    standing: Mapping[str, FleetComparison],
    single: SingleJobs | None,
    outage_ids: Mapping[tuple[str, datetime], str],
) -> Iterator[RepairReason]:
    """Every signal that says something, the gravest kind first."""
    if reported.recurrences:
        yield _recurrence(reported)
    if reported.outages:
        last = reported.outages[-1]
        text = (
            f"{many(len(reported.outages), 'unplanned outage')} in {WINDOW_D} days, "
            f"the last on {_day(last.start)} ({last.reason or 'no reason given'}); {_fleet_words(standing['failures'])}"
        )
        yield RepairReason("failures", text, events=_events(reported.outages, outage_ids))
    if standing["failures_90d"].count > standing["failures"].count:
        failures = standing["failures_90d"]
        text = f"{many(failures.count, 'failure')} in {MEMORY_D} days; {_fleet_words(failures)}"
        bad = [absence for absence in reported.repairs if absence.failed]
        yield RepairReason("failures_90d", text, events=_events(bad, outage_ids))
    yield from _of_jobs(reported, standing, single)
    yield from _of_faults(reported, standing)


def _events(outages: Sequence[Downtime], ids: Mapping[tuple[str, datetime], str]) -> tuple[str, ...]:
    keys = [(absence.node, absence.start) for absence in outages]
    return tuple(ids[key] for key in keys if key in ids)[-MAX_IDS:]


def _recurrence(reported: NodeFindings) -> RepairReason:
    _before, ended, again = reported.recurrences[-1]
    more = len(reported.recurrences) - 1
    times = f", and {many(more, 'more time')} like this" if more else ""
    return RepairReason(
        "recurrences",
        f"{again.words} of {again.device.words(again.name)} came back on {_day(again.start)}, after the repair that "
        f"ended on {_day(ended)}{times}",
        incidents=_ids([fault for pair in reported.recurrences for fault in (pair[0], pair[2])]),
    )


def _of_jobs(
    reported: NodeFindings, standing: Mapping[str, FleetComparison], single: SingleJobs | None
) -> Iterator[RepairReason]:
    if reported.stopped:
        runs = ", ".join(sorted({job.run for job in reported.stopped})[:3])
        yield RepairReason(
            "multi_node_job_failures",
            f"{many(len(reported.stopped), 'job')} on several nodes failed as it broke ({runs})",
            jobs=tuple(job.job_id for job in reported.stopped[-MAX_IDS:]),
        )
    if single is not None and single.failed:
        yield RepairReason(
            "single_node_job_failures",
            f"{len(single.failed)} of {many(single.ended, 'one-node job')} failed on it; "
            f"{_fleet_words(standing['single_job_failures'])}",
            jobs=single.failed[-MAX_IDS:],
        )


def _of_faults(reported: NodeFindings, standing: Mapping[str, FleetComparison]) -> Iterator[RepairReason]:
    if reported.faults:
        yield RepairReason(
            "fault_days",
            f"hardware faults on {standing['fault_days'].count} of {WINDOW_D} days: {_code_words(reported.faults)}; "
            f"{_fleet_words(standing['fault_days'])}",
            incidents=_ids(reported.faults),
        )
    if reported.flaps:
        yield RepairReason(
            "flap_days",
            f"lost a link {_times(len(reported.flaps))}, on {standing['flap_days'].count} of {WINDOW_D} days; "
            f"{_fleet_words(standing['flap_days'])}",
            incidents=_ids(reported.flaps),
        )
    if reported.signs:
        yield RepairReason(
            "hardware_xids", f"lesser Xids: {_code_words(reported.signs)}", incidents=_ids(reported.signs)
        )


_DIAGNOSIS = "the vendor's diagnosis (NVIDIA: dcgmi diag -r 4; AMD: agfhc or rvs; Ascend: ascend-dmi; Cambricon: cnvs)"


def next_step(part: FaultyPart | None, reported: NodeFindings) -> str:
    """What to do with the node."""
    if part is None:
        if reported.flaps and not reported.faults and len(reported.flaps) > len(reported.outages):
            return "Clean and reseat the optics and cables of its links at both ends; exchange what flaps again."
        return (
            f"No single part stands out: take it out and test the whole machine ({_DIAGNOSIS}, memory, links, power); "
            "return it only if it passes."
        )
    where = part.words
    again = any(fault.part == part.faults[0].part for _, _, fault in reported.recurrences)
    if part.device.type in ("port", "hca", "switch"):
        if again:
            return f"Exchange optic and cable of {where}: it failed again after a repair."
        return f"Clean and reseat optic and cable of {where} at both ends; exchange them if it flaps again."
    if again:
        return f"Exchange {where}: the same fault came back after a repair."
    if part.device.type in ("gpu", "npu", "mlu", "hpu", "nvswitch"):
        return f"Take the node out, run {_DIAGNOSIS} on {where}, and exchange it if that fails or the fault comes back."
    return f"Take the node out, test {where}, and exchange it if the fault shows again."


def _code_words(faults: Sequence[NodeFault]) -> str:
    """`xid 79 (3), ecc_dbe (1)`."""
    found = Counter(fault.what for fault in faults).most_common()
    more = f" and {many(len(found) - _SHOWN_CODES, 'other')}" if len(found) > _SHOWN_CODES else ""
    return ", ".join(f"{what} ({times})" for what, times in found[:_SHOWN_CODES]) + more


def _ids(faults: Sequence[NodeFault]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fault.id for fault in faults))[-MAX_IDS:]


def _fleet_words(standing: FleetComparison) -> str:
    return f"a node of this fleet has {standing.expected:.2g} on average"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


FALSE_SHARE = 0.1
_LEAST_SURE = 0.5
# No list that people work through is longer; the count of all is told.
MOST = 500


@dataclass(frozen=True, slots=True)
class Repair:
    """One time out of service, and whether the same fault of the same device showed again afterwards."""

    start: datetime
    end: datetime | None
    reason: str
    planned: bool
    came_back: bool


@dataclass(frozen=True, slots=True)
class Lemon:
    """A node for repair. `times_fleet` is its rate as a multiple of the fleet's mean, in the signal that tells most.

    `probability` is that the multiple is at least `TIMES`; `signals` are counts, None where the store cannot know.
    """

    node: str
    place: Node
    probability: float
    times_fleet: float
    signals: Mapping[str, int | None]
    part: FaultyPart | None
    codes: Mapping[str, int]
    first_seen: datetime
    last_seen: datetime
    lines: tuple[RepairReason, ...]
    repairs: tuple[Repair, ...]
    next_step: str


@dataclass(frozen=True, slots=True)
class RepairList:
    """All of them, the worst first; `fleet` is each judged signal's mean per node and the shape of its spread."""

    at: datetime
    nodes: int
    fleet: Mapping[str, Mapping[str, float | None]]
    found: int
    items: tuple[Lemon, ...]


def repair_list(connection: sa.Connection, at: datetime) -> RepairList:
    """The list as of a moment. An empty store gives an empty one."""
    records = read_records(connection, at)
    counts = count(records)
    judged = {signal.name: excess(counts.count[signal.name], counts.exposure[signal.name], TIMES) for signal in JUDGED}
    listed = _listed(counts, judged)
    standings = {name: _comparisons(counts, judged, i) for i, name in enumerate(counts.names) if listed[i]}
    order = sorted(standings, key=lambda name: (*(-value for value in _gravity(standings[name])), name))
    shown = order[:MOST]
    earlier = earlier_faults(connection, records, shown)
    for name in shown:
        add_memory(counts.findings[name], earlier.get(name, ()))
    parts = identified(connection, {name: culprit_of(counts.findings[name]) for name in shown})
    ids = outage_ids(connection, shown, records.since, at)
    items = tuple(
        _lemon(_LemonCase(records, counts.findings[name], standings[name], parts.get(name), ids), name)
        for name in shown
    )
    return RepairList(
        at, len(counts.names), {name: _fleet_means(found) for name, found in judged.items()}, len(order), items
    )


def chosen(probability: Floats, false_share: float) -> Bools:
    """Which nodes a list may hold: the surest first, while the expected share of false ones stays within bounds.

    The expected number of false ones among them is the sum of 1 - probability.
    """
    sure = np.nan_to_num(probability, nan=0.0)
    order = np.argsort(-sure, kind="stable")
    share = np.cumsum(1.0 - sure[order]) / np.arange(1, len(order) + 1)
    kept = np.zeros(len(sure), dtype=np.bool_)
    kept[order] = (share <= false_share) & (sure[order] > _LEAST_SURE)
    return kept


def _listed(counts: Counts, judged: Mapping[str, Excess]) -> Bools:
    """Nodes that any signal lists; what lies further back counts only for a node that failed in the window too."""
    listed = np.zeros(len(counts.names), dtype=np.bool_)
    for signal in JUDGED:
        found = chosen(judged[signal.name].probability, FALSE_SHARE)
        listed |= found & (counts.count["failures"] > 0) if signal.name == "failures_90d" else found
    return listed


def _comparisons(counts: Counts, judged: Mapping[str, Excess], i: int) -> dict[str, FleetComparison]:
    """A node in every judged signal; where nothing is known of it there, it is sure of nothing."""
    return {
        signal: FleetComparison(
            int(counts.count[signal][i]),
            *(float(np.nan_to_num(values[i])) for values in (found.expected, found.probability, found.multiple)),
        )
        for signal, found in judged.items()
    }


def _gravity(standings: Mapping[str, FleetComparison]) -> tuple[float, float]:
    """How sure, and how many times the fleet's rate, in the signal that tells most."""
    return max((one.probability, one.multiple) for one in standings.values())


def _fleet_means(found: Excess) -> dict[str, float | None]:
    """A judged signal of the fleet: the mean of its nodes and the shape of the spread, None where nothing is known."""
    known = found.expected[~np.isnan(found.expected)]
    per_node = float(known.mean()) if len(known) else None
    return {"per_node": per_node, "shape": None if np.isnan(found.shape) else found.shape}


@dataclass(frozen=True, slots=True)
class _LemonCase:
    """All that is known of one listed node."""

    records: RepairRecords
    findings: NodeFindings
    standings: Mapping[str, FleetComparison]
    part: FaultyPart | None
    outage_ids: Mapping[tuple[str, datetime], str]


def _lemon(case: _LemonCase, name: str) -> Lemon:
    reported = case.findings
    probability, multiple = _gravity(case.standings)
    moments = [absence.start for absence in reported.outages]
    moments += [fault.start for fault in (*reported.faults, *reported.flaps, *reported.signs)]
    lines = reasons_of(reported, case.standings, case.records.single.get(name), case.outage_ids)
    return Lemon(
        node=name,
        place=case.records.nodes[name],
        probability=probability,
        times_fleet=multiple,
        signals=_signals(case),
        part=case.part,
        codes=_code_counts(reported),
        first_seen=min(moments, default=case.records.at),
        last_seen=max(moments, default=case.records.at),
        lines=tuple(lines),
        repairs=tuple(_repair(absence, reported) for absence in reported.repairs),
        next_step=next_step(case.part, reported),
    )


def _signals(case: _LemonCase) -> dict[str, int | None]:
    """The counts by name: Meta's seven first. Which jobs were told to exclude a node is in no source."""
    reported, standing, jobs = case.findings, case.standings, case.records.jobs is not None
    return {
        "outages": len(reported.outages),
        "hardware_xids": sum(fault.kind == "xid" for fault in (*reported.faults, *reported.flaps, *reported.signs)),
        "multi_node_job_failures": len(reported.stopped) if jobs else None,
        "single_node_job_failures": standing["single_job_failures"].count if jobs else None,
        "excluded_jobs": None,
        "fault_days": standing["fault_days"].count,
        "flap_days": standing["flap_days"].count,
        "recurrences": len(reported.recurrences),
        "failures_90d": standing["failures_90d"].count,
    }


def _code_counts(reported: NodeFindings) -> dict[str, int]:
    codes: dict[str, int] = {}
    for fault in (*reported.faults, *reported.flaps, *reported.signs):
        codes[fault.what] = codes.get(fault.what, 0) + 1
    return dict(sorted(codes.items(), key=lambda item: (-item[1], item[0])))


def _repair(absence: Downtime, reported: NodeFindings) -> Repair:
    came_back = any(
        absence.end is not None and before.start <= absence.end <= again.start
        for before, _, again in reported.recurrences
    )
    return Repair(absence.start, absence.end, absence.reason, absence.planned, came_back)

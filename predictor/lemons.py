"""The repair list: which nodes should go to repair, because they fail more than chance allows in this fleet.

    report = repair_list(connection, at)
    report.items[0].node, report.items[0].next_step

A node is listed when, in one of the judged signals, it is likelier than not that its own rate is at least `TIMES` the
fleet's mean, and the list of that signal as a whole is expected to hold no more than `FALSE_SHARE` of nodes that are
not. Both are about rates against the fleet's own; no threshold is set in counts, so none has to fit a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.fleet_rate import Excess, excess
from predictor.history import Bools, Floats
from predictor.lemon_parts import Part, culprit_of, identified
from predictor.lemon_records import Absence, Records, earlier_faults, outage_ids, read_records
from predictor.lemon_signals import JUDGED, Counts, Told, count, remember
from predictor.lemon_words import Line, Standing, lines_of, next_step
from store.node import Node

TIMES = 4.0
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
    part: Part | None
    codes: Mapping[str, int]
    first_seen: datetime
    last_seen: datetime
    lines: tuple[Line, ...]
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
    standings = {name: _standings(counts, judged, i) for i, name in enumerate(counts.names) if listed[i]}
    order = sorted(standings, key=lambda name: (*(-value for value in _gravity(standings[name])), name))
    shown = order[:MOST]
    earlier = earlier_faults(connection, records, shown)
    for name in shown:
        remember(counts.told[name], earlier.get(name, ()))
    parts = identified(connection, {name: culprit_of(counts.told[name]) for name in shown})
    ids = outage_ids(connection, shown, records.since, at)
    items = tuple(
        _lemon(_Case(records, counts.told[name], standings[name], parts.get(name), ids), name) for name in shown
    )
    return RepairList(at, len(counts.names), {name: _fleet(found) for name, found in judged.items()}, len(order), items)


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


def _standings(counts: Counts, judged: Mapping[str, Excess], i: int) -> dict[str, Standing]:
    """A node in every judged signal; where nothing is known of it there, it is sure of nothing."""
    return {
        signal: Standing(
            int(counts.count[signal][i]),
            *(float(np.nan_to_num(values[i])) for values in (found.expected, found.probability, found.multiple)),
        )
        for signal, found in judged.items()
    }


def _gravity(standings: Mapping[str, Standing]) -> tuple[float, float]:
    """How sure, and how many times the fleet's rate, in the signal that tells most."""
    return max((one.probability, one.multiple) for one in standings.values())


def _fleet(found: Excess) -> dict[str, float | None]:
    """A judged signal of the fleet: the mean of its nodes and the shape of the spread, None where nothing is known."""
    known = found.expected[~np.isnan(found.expected)]
    per_node = float(known.mean()) if len(known) else None
    return {"per_node": per_node, "shape": None if np.isnan(found.shape) else found.shape}


@dataclass(frozen=True, slots=True)
class _Case:
    """All that is known of one listed node."""

    records: Records
    told: Told
    standings: Mapping[str, Standing]
    part: Part | None
    outage_ids: Mapping[tuple[str, datetime], str]


def _lemon(case: _Case, name: str) -> Lemon:
    told = case.told
    probability, multiple = _gravity(case.standings)
    moments = [absence.start for absence in told.outages]
    moments += [fault.start for fault in (*told.faults, *told.flaps, *told.signs)]
    lines = lines_of(told, case.standings, case.records.single.get(name), case.outage_ids)
    return Lemon(
        node=name,
        place=case.records.nodes[name],
        probability=probability,
        times_fleet=multiple,
        signals=_signals(case),
        part=case.part,
        codes=_codes(told),
        first_seen=min(moments, default=case.records.at),
        last_seen=max(moments, default=case.records.at),
        lines=tuple(lines),
        repairs=tuple(_repair(absence, told) for absence in told.repairs),
        next_step=next_step(case.part, told),
    )


def _signals(case: _Case) -> dict[str, int | None]:
    """The counts by name: Meta's seven first. Which jobs were told to exclude a node is in no source."""
    told, standing, jobs = case.told, case.standings, case.records.jobs is not None
    return {
        "outages": len(told.outages),
        "hardware_xids": sum(fault.kind == "xid" for fault in (*told.faults, *told.flaps, *told.signs)),
        "multi_node_job_failures": len(told.stopped) if jobs else None,
        "single_node_job_failures": standing["single_job_failures"].count if jobs else None,
        "excluded_jobs": None,
        "fault_days": standing["fault_days"].count,
        "flap_days": standing["flap_days"].count,
        "recurrences": len(told.recurrences),
        "failures_90d": standing["failures_90d"].count,
    }


def _codes(told: Told) -> dict[str, int]:
    codes: dict[str, int] = {}
    for fault in (*told.faults, *told.flaps, *told.signs):
        codes[fault.what] = codes.get(fault.what, 0) + 1
    return dict(sorted(codes.items(), key=lambda item: (-item[1], item[0])))


def _repair(absence: Absence, told: Told) -> Repair:
    came_back = any(
        absence.end is not None and before.start <= absence.end <= again.start for before, _, again in told.recurrences
    )
    return Repair(absence.start, absence.end, absence.reason, absence.planned, came_back)

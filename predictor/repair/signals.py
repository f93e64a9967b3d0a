"""Which part of a node is the culprit, and by which number a vendor knows it."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

import numpy as np
import sqlalchemy as sa

from predictor.history.arrays import Floats, Ints
from predictor.repair.records import (
    MEMORY_D,
    NAMES_AT_A_TIME,
    SERIALS,
    WINDOW_D,
    Downtime,
    JobEnd,
    NodeFault,
    RepairRecords,
    hosts_of,
)
from store.records.event import Device
from store.records.job import AFTER_END, BEFORE_END
from store.tables import schema

# The signals of the repair list: what is counted of each node, and over which exposure it is compared.
#
# They are Meta's seven (FIELD A1) as far as a store has them, and recurrences. `JUDGED` are compared with the fleet;
# the others are told. What a store cannot know (which jobs were told to avoid a node) is replaced by what it can see: a
# run that went on at once without a node that was up.

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
class NodeFindings:
    """What is known of one node within the window."""

    outages: list[Downtime] = field(default_factory=list)
    stopped: list[JobEnd] = field(default_factory=list)  # multi-node jobs that its faults or outages ended
    alone: list[JobEnd] = field(default_factory=list)  # those of them that no outage of it explains
    faults: list[NodeFault] = field(default_factory=list)  # serious ones but for lost links
    flaps: list[NodeFault] = field(default_factory=list)
    remembered: list[NodeFault] = field(default_factory=list)  # serious ones of `MEMORY_D` but for lost links
    signs: list[NodeFault] = field(default_factory=list)  # faults that are not serious: row remaps, warnings
    recurrences: list[tuple[NodeFault, datetime, NodeFault]] = field(
        default_factory=list
    )  # before, end of repair, again
    failures_90d: int = 0
    repairs: list[Downtime] = field(default_factory=list)  # all of `MEMORY_D`, planned ones too


@dataclass(frozen=True, slots=True)
class Counts:
    """Every node's counts and exposures of the judged signals; `findings` is what they were counted from."""

    names: tuple[str, ...]
    findings: Mapping[str, NodeFindings]
    count: Mapping[str, Ints]
    exposure: Mapping[str, Floats]


def count(records: RepairRecords) -> Counts:
    """Count everything, as of `records.at`."""
    reported = {name: _findings(records, name) for name in records.nodes}
    _blame(records, reported)
    names = tuple(records.nodes)
    counts = {signal.name: np.zeros(len(names), dtype=np.int64) for signal in JUDGED}
    exposure = {signal.name: np.zeros(len(names)) for signal in JUDGED}
    for i, name in enumerate(names):
        one, single = reported[name], records.single.get(name)
        counts["failures"][i] = len(one.outages) + len({job.end for job in one.alone})
        counts["failures_90d"][i] = one.failures_90d + len({job.end for job in one.alone})
        counts["fault_days"][i] = _days(one.faults, records.at)
        counts["flap_days"][i] = _days(one.flaps, records.at)
        counts["single_job_failures"][i] = len(single.failed) if single else 0
        exposure["failures"][i] = _served_days(records, name, records.first)
        exposure["failures_90d"][i] = _served_days(records, name, records.since)
        exposure["single_job_failures"][i] = single.ended if single else 0
    exposure["fault_days"] = exposure["flap_days"] = exposure["failures"]
    return Counts(names, reported, counts, exposure)


def _findings(records: RepairRecords, name: str) -> NodeFindings:
    absences = records.absences.get(name, ())
    bad = [absence for absence in absences if absence.failed]
    faults = records.faults.get(name, ())
    serious = [fault for fault in faults if fault.serious]
    return NodeFindings(
        outages=[absence for absence in bad if absence.start >= records.first],
        faults=[fault for fault in serious if fault.family != "link_flap"],
        flaps=[fault for fault in serious if fault.family == "link_flap"],
        signs=[fault for fault in faults if not fault.serious],
        failures_90d=len(bad),
        repairs=list(absences),
    )


def add_memory(reported: NodeFindings, earlier: Sequence[NodeFault]) -> None:
    """Add what earlier faults say of a node: which part it was before, and what came back after a repair."""
    serious = sorted(
        [*(fault for fault in earlier if fault.serious), *reported.faults, *reported.flaps],
        key=lambda fault: fault.start,
    )
    reported.remembered = [fault for fault in serious if fault.family != "link_flap"]
    ends = sorted(absence.end for absence in reported.repairs if absence.failed and absence.end is not None)
    recent = {fault.id for fault in (*reported.faults, *reported.flaps)}
    last: dict[tuple[str, str], NodeFault] = {}
    for fault in serious:
        before = last.get((fault.part, fault.what))
        if before is not None and fault.id in recent:
            ended = ends[bisect_left(ends, before.start) : bisect_left(ends, fault.start)]
            if ended:
                reported.recurrences.append((before, ended[-1], fault))
        last[fault.part, fault.what] = fault


def _days(faults: Sequence[NodeFault], at: datetime) -> int:
    """On how many days there was one, in days before the moment: a burst is one day's."""
    return len({(at - fault.start) // _DAY for fault in faults})


def _served_days(records: RepairRecords, name: str, first: datetime) -> float:
    """For how long the node was in service since a moment, its time out left out."""
    node = records.nodes[name]
    begin = max(first, node.in_service_since or first)
    end = min(records.at, node.in_service_until or records.at)
    absences = records.absences.get(name, ())
    spans = (min(absence.end or end, end) - max(absence.start, begin) for absence in absences)
    out = sum((max(span, timedelta()) for span in spans), timedelta())
    return max((end - begin - out) / _DAY, 0.0)


def _blame(records: RepairRecords, reported: Mapping[str, NodeFindings]) -> None:
    """Give every failed job of several nodes to the nodes of it that broke just then."""
    breaks = [(a.start, name, True) for name, one in reported.items() for a in one.outages]
    breaks += [(f.start, name, False) for name, one in reported.items() for f in (*one.faults, *one.flaps)]
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
            reported[name].stopped.append(job)
            if name not in out:
                reported[name].alone.append(job)


# A part stands out when it was bad on this share of the days on which any was, and more than once.
DOMINANT = 0.6


@dataclass(frozen=True, slots=True)
class FaultyPart:
    """The culprit: bad on `days` of the `of` days that any of the node's parts was; `far_end`: where its link leads."""

    device: Device
    name: str | None
    faults: tuple[NodeFault, ...]
    days: int
    of: int
    serial: str | None = None
    uuid: str | None = None
    far_end: str | None = None

    @property
    def words(self) -> str:
        """`gpu 0000:d8:00.0`, `port 0xb83fd20300200061 (leaf-02 port 7)`."""
        return self.device.words(self.name) + (f" ({self.far_end})" if self.far_end else "")


def culprit_of(reported: NodeFindings) -> FaultyPart | None:
    """The part that gave most of a node's serious faults, of the window or else of the longer memory; None for none."""
    return (
        _dominant(reported.faults) or _dominant([*reported.faults, *reported.flaps]) or _dominant(reported.remembered)
    )


def _dominant(faults: Sequence[NodeFault]) -> FaultyPart | None:
    """The part that was bad on most days; a burst is one day's."""
    days: dict[str, set[date]] = {}
    for fault in faults:
        days.setdefault(fault.part, set()).add(fault.start.date())
    if not days:
        return None
    part, bad = max(days.items(), key=lambda item: (len(item[1]), item[0]))
    mine = tuple(fault for fault in faults if fault.part == part)
    of = sum(map(len, days.values()))
    if len(mine) < 2 or len(bad) < DOMINANT * of or (mine[0].device.type == "node" and not mine[0].name):
        return None
    return FaultyPart(mine[-1].device, mine[-1].name, mine, len(bad), of, uuid=mine[-1].device.uuid)


def identified(connection: sa.Connection, parts: Mapping[str, FaultyPart | None]) -> dict[str, FaultyPart]:
    """The parts with serial number, uuid and far end, where the events of their faults or the topology tell them."""
    known = {node: part for node, part in parts.items() if part is not None}
    about = _attributes(connection, [fault.id for part in known.values() for fault in part.faults[-20:]])
    cables = _cables(connection, [node for node, part in known.items() if part.device.type in ("port", "hca")])
    found = {}
    for node, part in known.items():
        reported = [about[fault.id] for fault in reversed(part.faults) if fault.id in about]
        serials = (one[key] for one in reported for key in SERIALS if one.get(key))
        uuids = (one["uuid"] for one in reported if one.get("uuid"))
        found[node] = replace(
            part,
            serial=next((str(serial) for serial in serials), None),
            uuid=part.uuid or next((str(uuid) for uuid in uuids), None),
            far_end=cables.get(node),
        )
    return found


def _attributes(connection: sa.Connection, ids: Sequence[str]) -> dict[str, dict[str, object]]:
    """The attributes of the events that began the incidents: these bear the same id."""
    table, found = schema.events, dict[str, dict[str, object]]()
    for i in range(0, len(ids), NAMES_AT_A_TIME):
        query = sa.select(table.c.id, table.c.attributes).where(table.c.id.in_(ids[i : i + NAMES_AT_A_TIME]))
        found |= {row.id: row.attributes for row in connection.execute(query)}
    return found


def _cables(connection: sa.Connection, nodes: Sequence[str]) -> dict[str, str]:
    """Where the link of a node leads; of a node with several links it is not known which one fell."""
    table, found = schema.links, dict[str, list[str]]()
    for i in range(0, len(nodes), NAMES_AT_A_TIME):
        query = sa.select(table.c.peer, table.c.switch, table.c.port).where(
            table.c.peer.in_(nodes[i : i + NAMES_AT_A_TIME])
        )
        for peer, switch, port in connection.execute(query.order_by(table.c.switch, table.c.port)):
            found.setdefault(peer, []).append(f"{switch} port {port}")
    return {node: ends[0] for node, ends in found.items() if len(ends) == 1}

"""What the repair list counts, read from the store in a few plain selects: faults, outages, jobs.

    records = read_records(connection, at)

A fault is an incident of the machine: an Xid that is no application's, or anything serious of hardware, fabric, driver
or host. A fault or outage that three nodes of a leaf, or many of the fleet, share within ten minutes is the switch's or
the site's and no node's: it is left out. So is what a verdict that is likelier right than wrong puts down to something
else: the node is one of its victims, or no machine is to blame.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa

from predictor.history.families import family_of, is_serious
from store.nodes.inventory import read_nodes
from store.records.event import Device
from store.records.fault_catalog import kind_description, named_kind
from store.records.hostlist import expand
from store.records.job import FAILED_STATES
from store.records.node import Node
from store.records.verdict import Verdict
from store.tables import schema
from store.verdicts.verdict_log import verdicts_between

# Who shares a cause: so many nodes of one leaf, or of the fleet, within so long.
_TOGETHER, _OF_LEAF, _OF_FLEET, _OF_FLEET_SHARE = timedelta(minutes=10), 3, 10, 0.02
_STORAGE_OF_A_NODE = "disk"
# What is judged (Meta's snapshot, FIELD A1), and how far back outages are remembered.
WINDOW_D, MEMORY_D = 28, 90
# What is listed fails at this many times the rate of its fleet's mean, or more.
TIMES = 4.0
# Attributes of events that hold a part's number, first choice first.
SERIALS = ("serial", "cable_serial")
# So many names go into one query.
NAMES_AT_A_TIME = 400


@dataclass(frozen=True, slots=True)
class NodeFault:
    """One incident of a node, as much of it as the list needs; `serious` ones count, the others are told."""

    id: str
    node: str
    start: datetime
    end: datetime
    kind: str
    code: int | None
    action: str
    device_text: str
    name: str | None
    message: str
    family: str
    serious: bool

    @property
    def device(self) -> Device:
        """Where in the node."""
        return Device(**orjson.loads(self.device_text))

    @property
    def what(self) -> str:
        """`xid 79`, `ecc_dbe`: what a vendor counts by."""
        return named_kind(self.kind, self.code)

    @property
    def words(self) -> str:
        """`xid 79`, `GPU memory errors that could not be corrected (ecc_dbe)`: the same in a sentence."""
        meaning = kind_description(self.kind, None, "error", "hardware") if self.code is None else None
        return self.what if meaning is None else f"{meaning} ({self.what})"

    @property
    def part(self) -> str:
        """The same text for the same device of a node."""
        return f"{self.device_text}{self.name or ''}"


@dataclass(frozen=True, slots=True)
class Downtime:
    """A time out of service; `end` is None where it was not over by the moment asked about."""

    node: str
    start: datetime
    end: datetime | None
    reason: str
    planned: bool
    cause: str

    @property
    def failed(self) -> bool:
        """Whether the machine failed: not planned, and no user's doing."""
        return not self.planned and self.cause != "application"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that failed on several nodes; `hosts` is Slurm's short list of them."""

    job_id: str
    run: str
    state: str
    end: datetime
    hosts: str


@dataclass(frozen=True, slots=True)
class SingleJobs:
    """A node's one-node jobs: how many different ones ended on it, and which of them failed."""

    ended: int
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepairRecords:
    """All of it, by node, in order of time: faults and jobs since `first`, outages since `since`.

    `jobs` is None where the store holds none: unknown is not zero.
    """

    at: datetime
    first: datetime
    since: datetime
    nodes: Mapping[str, Node]
    faults: Mapping[str, Sequence[NodeFault]]
    absences: Mapping[str, Sequence[Downtime]]
    jobs: Sequence[JobEnd] | None
    single: Mapping[str, SingleJobs]


def read_records(connection: sa.Connection, at: datetime) -> RepairRecords:
    """What befell every node before a moment: in the window, and its outages for longer."""
    first, since = at - timedelta(days=WINDOW_D), at - timedelta(days=MEMORY_D)
    nodes = {node.node: node for node in read_nodes(connection)}
    excused = _VerdictRecord.of(verdicts_between(connection, since, at))
    known = [fault for fault in _faults(connection, first, at) if fault.node in nodes]
    faults = _own([fault for fault in known if not excused.fault(fault)], nodes)
    absences = [absence for absence in _downtimes(connection, since, at) if absence.node in nodes]
    absences = [absence for absence in absences if absence.planned or not excused.outage(absence)]
    unplanned = _own([absence for absence in absences if not absence.planned], nodes)
    kept = sorted([*unplanned, *(absence for absence in absences if absence.planned)], key=lambda one: one.start)
    has_jobs = connection.scalar(sa.select(sa.literal(1)).select_from(schema.jobs).limit(1)) is not None
    return RepairRecords(
        at,
        first,
        since,
        nodes,
        _by_node(faults),
        _by_node(kept),
        _jobs(connection, first, at) if has_jobs else None,
        _single(connection, first, at) if has_jobs else {},
    )


# A verdict that counts, and how long before its first sign and after its last an outage is its doing.
_LIKELIER = 0.5
_DOING = timedelta(minutes=10)
_NO_MACHINE = ("application", "job", "planned")


@dataclass(frozen=True, slots=True)
class _VerdictRecord:
    """What befell nodes that only suffered: the incidents of each, and when an outage was somebody else's doing."""

    incidents: Mapping[str, frozenset[str]]
    spans: Mapping[str, Sequence[tuple[datetime, datetime]]]

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> "_VerdictRecord":
        incidents: dict[str, set[str]] = {}
        spans: dict[str, list[tuple[datetime, datetime]]] = {}
        for one in verdicts:
            if one.probability < _LIKELIER or one.cause_class == "unknown" or one.state == "explained":
                continue
            span = (one.since - _DOING, (one.last or one.since) + _DOING)
            for node in one.nodes if one.cause_class in _NO_MACHINE else one.victims:
                if node != one.node:
                    incidents.setdefault(node, set()).update(one.incidents)
                    spans.setdefault(node, []).append(span)
        return cls({node: frozenset(found) for node, found in incidents.items()}, spans)

    def fault(self, fault: NodeFault) -> bool:
        """Whether a fault is another's doing."""
        return fault.id in self.incidents.get(fault.node, ())

    def outage(self, absence: Downtime) -> bool:
        """Whether an outage is."""
        return any(begin <= absence.start <= end for begin, end in self.spans.get(absence.node, ()))


def earlier_faults(
    connection: sa.Connection, records: RepairRecords, nodes: Sequence[str]
) -> dict[str, list[NodeFault]]:
    """The faults of a few nodes between the beginning of the memory and that of the window."""
    found: list[NodeFault] = []
    for i in range(0, len(nodes), NAMES_AT_A_TIME):
        found += _faults(connection, records.since, records.first, nodes[i : i + NAMES_AT_A_TIME])
    return _by_node([fault for fault in found if fault.end < records.first])


def _by_node(found: Sequence[Any]) -> dict[str, list[Any]]:
    by_node: dict[str, list[Any]] = {}
    for one in found:
        by_node.setdefault(one.node, []).append(one)
    return by_node


def _faults(
    connection: sa.Connection, since: datetime, at: datetime, nodes: Sequence[str] | None = None
) -> list[NodeFault]:
    table = schema.incidents
    query = (
        sa.select(
            *(table.c[name] for name in ("id", "node", "start", "end", "kind", "code", "severity", "cause", "action")),
            sa.cast(table.c.device, sa.Text),
            table.c.name,
            table.c.message,
        )
        .where(table.c.end >= since, table.c.start < at, table.c.node.is_not(None), table.c.cause != "application")
        .where(sa.or_(table.c.severity.in_(("error", "fatal")), table.c.kind == "xid"))
        .order_by(table.c.start, table.c.id)
    )
    if nodes is not None:
        query = query.where(table.c.node.in_(nodes))
    found = []
    for key, node, start, end, kind, code, severity, cause, action, device, name, message in connection.execute(query):
        family = family_of(kind, code, severity, cause)
        if family in (None, "app_xid") or (cause == "storage" and _STORAGE_OF_A_NODE not in device):
            continue
        serious = is_serious(severity, cause)
        found.append(NodeFault(key, node, start, end, kind, code, action, device, name, message, family or "", serious))
    return found


def _downtimes(connection: sa.Connection, since: datetime, at: datetime) -> list[Downtime]:
    table = schema.outages
    query = sa.select(table).where(table.c.start >= since, table.c.start < at).order_by(table.c.start, table.c.node)
    return [
        Downtime(
            row.node,
            row.start,
            row.end if row.end is not None and row.end < at else None,
            row.reason or row.state,
            row.planned,
            row.cause,
        )
        for row in connection.execute(query)
    ]


def outage_ids(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, at: datetime
) -> dict[tuple[str, datetime], str]:
    """The ids of the events that told of the nodes' outages, by node and start."""
    table, found = schema.events, dict[tuple[str, datetime], str]()
    for i in range(0, len(nodes), NAMES_AT_A_TIME):
        query = sa.select(table.c.node, table.c.time, table.c.id).where(table.c.kind == "outage")
        query = query.where(table.c.time >= since, table.c.time < at, table.c.node.in_(nodes[i : i + NAMES_AT_A_TIME]))
        found |= {(node, time): key for node, time, key in connection.execute(query)}
    return found


def _jobs(connection: sa.Connection, since: datetime, at: datetime) -> list[JobEnd]:
    table = schema.jobs
    query = (
        sa.select(table.c.job_id, table.c.run, table.c.state, table.c.end, table.c.node_list)
        .where(table.c.end >= since, table.c.end < at, table.c.nodes > 1, table.c.state.in_(FAILED_STATES))
        .order_by(table.c.end, table.c.job_id)
    )
    return [JobEnd(*row) for row in connection.execute(query)]


def _single(connection: sa.Connection, since: datetime, at: datetime) -> dict[str, SingleJobs]:
    """One-node jobs by node. A user's loop that fails a hundred times is one run, and counts once."""
    table = schema.jobs
    query = sa.select(table.c.node_list, table.c.run, table.c.state.in_(FAILED_STATES)).distinct()
    query = query.where(table.c.end >= since, table.c.end < at, table.c.nodes == 1)
    ended: dict[str, set[str]] = {}
    failed: dict[str, set[str]] = {}
    for host, run, bad in connection.execute(query):
        ended.setdefault(host, set()).add(run)
        if bad:
            failed.setdefault(host, set()).add(run)
    return {host: SingleJobs(len(runs), tuple(sorted(failed.get(host, ())))) for host, runs in ended.items()}


def hosts_of(job: JobEnd, kept: dict[str, frozenset[str]]) -> frozenset[str]:
    """The nodes of a job; lists that jobs share are read once. One that cannot be read names none."""
    if job.hosts not in kept:
        try:
            kept[job.hosts] = frozenset(expand(job.hosts))
        except ValueError:
            kept[job.hosts] = frozenset()
    return kept[job.hosts]


def _own(found: list[Any], nodes: Mapping[str, Node]) -> list[Any]:
    """Those that a node does not share with others of its leaf, or with much of the fleet, at the same time."""
    found.sort(key=lambda one: one.start)
    times = np.array([one.start.timestamp() for one in found])
    first = np.searchsorted(times, times - _TOGETHER.total_seconds() / 2, side="left")
    last = np.searchsorted(times, times + _TOGETHER.total_seconds() / 2, side="right")
    most = max(_OF_FLEET, _OF_FLEET_SHARE * len(nodes))
    kept = []
    for i, one in enumerate(found):
        near = {other.node for other in found[first[i] : min(last[i], first[i] + 1000)]}
        leaf = nodes[one.node].leaf
        of_leaf = sum(1 for name in near if leaf is not None and nodes[name].leaf == leaf)
        if of_leaf < _OF_LEAF and len(near) < most:
            kept.append(one)
    return kept

"""Which device is the culprit: the incidents before a stop, ranked by how well they explain it, with evidence.

    with engine.begin() as connection:
        for culprit in rank(connection, run="llm-70b", at=None): print(culprit.rank, culprit.node, culprit.reason)

The score (0-1) is our own weighing, not a probability: what the fault is (fatal hardware first), when it began (the
first after the last progress), whether others vanished with it (then the switch above them), whether it is a program's
own error (seen on many nodes at once, the consequence of another's fault).
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from diagnosis.culprits.plausibility import Plausibility, Topology, read_topology, together, weigh
from diagnosis.causes.stop import Stoppage, stop_of
from diagnosis.incidents.incident import NODE_GAP
from store.events.event_pages import EventWindow, event_of, read_events
from store.records.event import Cause, Device, Event, format_time
from store.records.event_sources import NO_FAULT
from store.records.incident import Incident, incident_of
from store.tables import schema

# A culprit: one suspect of a stop, with its score, the reason in an operator's words and the evidence.


@dataclass(frozen=True, slots=True)
class Culprit:
    """One suspect. `events` are ids; `incident` is None where an outage alone speaks against the node.

    `link` is that of the device; `domain` the NVLink domain that it took along, whose nodes that felt it are `nodes`.
    """

    rank: int
    node: str | None
    device: Device
    incident: str | None
    score: float
    reason: str
    events: tuple[str, ...] = ()
    time: datetime | None = None
    cause: Cause = "unknown"
    nodes: tuple[str, ...] = ()
    name: str | None = None  # of the device, where it has one
    link: int | None = None
    domain: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The suspect as plain values."""
        found = asdict(self)
        found["time"] = None if self.time is None else format_time(self.time)
        return found


# What the program itself reported before it ended: the suspect where nothing of the machine is known.

# Below every grave fault of the machine, above a warning: programs fail by themselves most often, but they also
# report what the machine did to them.
_SCORE = 0.3
_MOST = 200
_PROGRAM_EVIDENCE = 10
# The error lines that follow from another process's end, not its own.
_CONSEQUENCES = ("process_exit", "worker_failed", "ChildFailedError", "task_killed", "nccl_watchdog", "cancelled")
_STORAGE = re.compile(
    r"Errno 5\b|Input/output error|Stale file handle|No space left|Read-only file system", re.IGNORECASE
)


def from_program(connection: sa.Connection, stop: Stoppage) -> list[Culprit]:
    """The run's own grave errors within the window, as one suspect; none where it reported nothing."""
    if stop.run is None:
        return []
    table = schema.events
    query = (
        sa.select(table)
        .where(
            table.c.run == stop.run,
            table.c.kind == "training_error",
            table.c.severity.in_(("error", "fatal")),
            table.c.time >= stop.last_work,
            table.c.time <= stop.end,
        )
        .order_by(table.c.time, table.c.line, table.c.id)
        .limit(_MOST)
    )
    errors = [event_of(row) for row in connection.execute(query)]
    if not errors:
        return []
    first = min(errors, key=lambda event: event.attributes.get("error") in _CONSEQUENCES)
    nodes = sorted({event.node for event in errors if event.node is not None})
    node = nodes[0] if len(nodes) == 1 else None  # when all tasks are killed, none of them is to blame
    return [
        Culprit(
            rank=0,
            node=node,
            device=Device(type="node"),
            incident=None,
            score=_SCORE,
            reason=f"the program reported: {first.message[:160]}",
            events=tuple(event.id for event in errors[:_PROGRAM_EVIDENCE] if event.id),
            time=first.time,
            cause=_cause(first),
            nodes=tuple(nodes),
        )
    ]


def _cause(error: Event) -> Cause:
    """The cause that the line tells, else the program's own."""
    if error.cause != "unknown":
        return error.cause
    return "storage" if _STORAGE.search(error.message) else "application"


MOST = 20  # culprits returned
_EVIDENCE = 10  # event ids of each
# A node that dies silently is marked down by the scheduler up to this long after the work stopped.
_MARKED_DOWN = timedelta(minutes=30)


def rank(connection: sa.Connection, run: str | None = None, at: datetime | None = None) -> list[Culprit]:
    """The suspects of a stop, the likeliest first.

    Args:
        run: the training run whose stop is to be explained; None for whatever stopped last.
        at: as of this moment; None for the newest stop known.
    """
    stop = stop_of(connection, run, at)
    return [] if stop is None else explain(connection, stop)


def explain(connection: sa.Connection, stop: Stoppage) -> list[Culprit]:
    """The suspects of one stop, the likeliest first."""
    topology = read_topology(connection)
    incidents = [one for one in _incidents(connection, stop) if topology.concerns(one, stop.nodes)]
    suspects = [
        *_from_incidents(incidents, stop, topology),
        *_from_outages(connection, incidents, stop),
        *from_program(connection, stop),
    ]
    suspects.sort(key=lambda one: (-one.score, one.time or stop.end, one.node or "", one.incident or ""))
    return [
        replace(one, rank=place, events=_events(connection, one, incidents))
        for place, one in enumerate(suspects[:MOST], start=1)
    ]


def _incidents(connection: sa.Connection, stop: Stoppage) -> list[Incident]:
    """Incidents of any node that showed within the window, by start."""
    table = schema.incidents
    query = (
        sa.select(table).where(table.c.end >= stop.since, table.c.start <= stop.end).order_by(table.c.start, table.c.id)
    )
    return [incident_of(row) for row in connection.execute(query).mappings()]


def _from_incidents(incidents: Sequence[Incident], stop: Stoppage, topology: Topology) -> list[Culprit]:
    """A suspect for each incident, and one for a switch under which several nodes vanished at once."""
    groups = together(incidents, topology)
    below = {one.id: group.leaf for group in groups for one in group.incidents}
    suspects = [_suspect(one, weigh(one, stop, incidents, below.get(one.id))) for one in incidents]
    for group in groups:
        verdict = group.verdict(stop)
        suspects.append(
            Culprit(
                rank=0,
                node=None,
                device=topology.switch_of(group.leaf),
                incident=group.incidents[0].id,
                score=verdict.score,
                reason=verdict.reason,
                time=group.incidents[0].start,
                cause="fabric",
                nodes=tuple(sorted({one.node for one in group.incidents if one.node is not None})),
            )
        )
    return suspects


def _suspect(incident: Incident, verdict: Plausibility) -> Culprit:
    return Culprit(
        rank=0,
        node=incident.node,
        device=incident.device,
        name=incident.name,
        incident=incident.id,
        score=verdict.score,
        reason=verdict.reason,
        time=incident.start,
        cause=incident.cause,
        nodes=incident.nodes or (() if incident.node is None else (incident.node,)),
        link=incident.link,
        domain=incident.domain,
    )


def _from_outages(connection: sa.Connection, incidents: Sequence[Incident], stop: Stoppage) -> list[Culprit]:
    """A node that went down unplanned, without an incident of its own: it died silently."""
    known = {incident.node for incident in incidents}
    found = []
    table = schema.outages
    query = (
        sa.select(table)
        .where(table.c.start >= stop.since, table.c.start <= stop.end + _MARKED_DOWN, table.c.planned.is_(False))
        .order_by(table.c.start, table.c.node)
    )
    for outage in connection.execute(query):
        if outage.node in known or (stop.nodes is not None and outage.node not in stop.nodes):
            continue
        said = f"{outage.state} {outage.reason}".strip()
        found.append(
            Culprit(
                rank=0,
                node=outage.node,
                device=Device(type="node"),
                incident=None,
                score=0.5,
                reason=f"went out of service ({said}) at {format_time(outage.start)} without a sign before",
                time=outage.start,
                cause=outage.cause,
                nodes=(outage.node,),
            )
        )
    return found


def _events(connection: sa.Connection, culprit: Culprit, incidents: Sequence[Incident]) -> tuple[str, ...]:
    """The ids of the first events behind a suspect."""
    if culprit.events:
        return culprit.events
    own = {incident.id: incident for incident in incidents}
    if culprit.incident is None or culprit.incident not in own:
        return ()
    incident = own[culprit.incident]
    alone = len(culprit.nodes) <= 1
    until = incident.end + timedelta(microseconds=1) if alone else max(incident.end, incident.start + NODE_GAP)
    window = EventWindow(since=incident.start, until=until, node=incident.node if alone else None)
    wanted = culprit.nodes or (None,)
    named = []
    for event in read_events(connection, window, limit=20 * _EVIDENCE, excluding=tuple(NO_FAULT)):
        if event.id and event.severity != "info" and event.node in wanted:
            named.append((event.node != culprit.node, event.id))
    if incident.domain is not None:  # the culprit's own words first, its neighbours' after them
        named.sort(key=lambda one: one[0])
    return tuple(ident for _, ident in named[:_EVIDENCE])

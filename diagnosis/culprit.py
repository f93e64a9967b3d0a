"""Which device is the culprit: the incidents before a stop, ranked by how well they explain it, with evidence.

    with engine.begin() as connection:
        for culprit in rank(connection, run="llm-70b", at=None): print(culprit.rank, culprit.node, culprit.reason)

The score (0-1) is our own weighing, not a probability: what the fault is (fatal hardware first), when it began (the
first after the last progress), whether others vanished with it (then the switch above them), whether it is a program's
own error (seen on many nodes at once, the consequence of another's fault).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.incident import NODE_GAP
from diagnosis.plausibility import Verdict, together, weigh
from diagnosis.program import from_program
from diagnosis.stop import Stop, stop_of
from diagnosis.suspect import Culprit
from diagnosis.topology import Topology, read_topology
from store import schema
from store.event import Device, format_time
from store.incident import Incident
from store.read import Window, incident_of, read_events
from store.sources import NO_FAULT

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


def explain(connection: sa.Connection, stop: Stop) -> list[Culprit]:
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


def _incidents(connection: sa.Connection, stop: Stop) -> list[Incident]:
    """Incidents of any node that showed within the window, by start."""
    table = schema.incidents
    query = (
        sa.select(table).where(table.c.end >= stop.since, table.c.start <= stop.end).order_by(table.c.start, table.c.id)
    )
    return [incident_of(row) for row in connection.execute(query).mappings()]


def _from_incidents(incidents: Sequence[Incident], stop: Stop, topology: Topology) -> list[Culprit]:
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


def _suspect(incident: Incident, verdict: Verdict) -> Culprit:
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
        nodes=() if incident.node is None else (incident.node,),
    )


def _from_outages(connection: sa.Connection, incidents: Sequence[Incident], stop: Stop) -> list[Culprit]:
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
    window = Window(since=incident.start, until=until, node=incident.node if alone else None)
    wanted = culprit.nodes or (None,)
    named = []
    for event in read_events(connection, window, limit=20 * _EVIDENCE, excluding=tuple(NO_FAULT)):
        if event.id and event.severity != "info" and event.node in wanted:
            named.append(event.id)
    return tuple(named[:_EVIDENCE])

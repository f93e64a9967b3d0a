"""The incidents table: new events merged with the incidents that are stored, of the affected nodes alone.

    with writing(engine).begin() as connection:
        taken = append_events(connection, events, received=now)
        touched = update_incidents(connection, taken.new)

The same whatever the order of the calls, and at the cost of the new events alone: no stored event is read again.
So each event may be handed in once; `diagnosis/incidents/intake.py` sees to that.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import msgspec
import orjson
import sqlalchemy as sa

from diagnosis.incidents.incident import (
    FAULT_COLUMNS,
    NODE_GAP,
    FaultSummary,
    Group,
    fault_from,
    fault_group,
    faults_of,
    gap_of,
)
from store.records.event import Event
from store.records.hostlist import hosts
from store.records.incident import Incident
from store.records.job import Job
from store.runs.jobs import read_jobs
from store.tables import schema
from store.tables.bulk_rows import bound_value, insert_rows, is_one_of

# The blast radius: how many nodes' work an incident touches, those of the job that ran on its node.


def with_blast_radius(connection: sa.Connection, incidents: Sequence[Incident]) -> list[Incident]:
    """Incidents (by start) with the node count of the largest job that ran on their node when they began.

    None where no job ran there, or where the incident names no node.
    """
    if not incidents:
        return []
    waiting = read_jobs(connection, window=(incidents[0].start, incidents[-1].start))
    running: list[Job] = []
    taken = 0
    found = []
    for incident in incidents:
        while taken < len(waiting) and _begun(waiting[taken], incident.start):
            running.append(waiting[taken])
            taken += 1
        running = [job for job in running if job.end is None or job.end >= incident.start]
        sizes = [_size(job) for job in running if incident.node in hosts(job.node_list)]
        radius = max(sizes, default=None)
        found.append(incident if radius == incident.blast_radius else replace(incident, blast_radius=radius))
    return found


def _begun(job: Job, moment: datetime) -> bool:
    return job.start is not None and job.start <= moment


def _size(job: Job) -> int:
    return job.nodes or len(hosts(job.node_list))


# Incidents that only count on: their rows are changed where they stand, but for what an incident keeps as it grows.
#
# grow(connection, [incident])

# Each with its type on PostgreSQL. The id is the first event's, so the start stays with it; the heads stay by premise.
_TYPES = {
    "end": "timestamptz",
    "kind": "text",
    "code": "bigint",
    "severity": "text",
    "cause": "text",
    "action": "text",
    "device": "json",
    "message": "text",
    "count": "bigint",
    "kinds": "json",
    "blast_radius": "integer",
    "source": "text",
    "name": "text",
}
_fields = attrgetter(*_TYPES)
_SET = ", ".join(f'"{name}" = grown."{name}"' for name in _TYPES)
_GROWN = ", ".join(f'"{name}" {kind}' for name, kind in _TYPES.items())
_POSTGRESQL = (
    f"UPDATE incidents SET {_SET} FROM json_to_recordset(%s::json) AS grown (id text, {_GROWN})"  # noqa: S608  # our own names
    " WHERE incidents.id = grown.id"
)
_MARKS = ", ".join(f'"{name}" = ?' for name in _TYPES)
_SQLITE = f"UPDATE incidents SET {_MARKS} WHERE id = ?"  # noqa: S608


def grow(connection: sa.Connection, incidents: Sequence[Incident]) -> None:
    """Change the rows of incidents that are stored under the same id, with the same start, node and heads."""
    if not incidents:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_POSTGRESQL, (msgspec.json.encode(incidents).decode(),))
        return
    connection.exec_driver_sql(_SQLITE, [_grown_row(incident) for incident in incidents])


def _grown_row(incident: Incident) -> tuple[Any, ...]:
    named = zip(_TYPES, _fields(incident), strict=True)
    values = [orjson.dumps(value).decode() if _TYPES[name] == "json" else bound_value(value) for name, value in named]
    return (*values, incident.id)


# More nodes than this are read with one query over the whole window.
_MANY = 5_000
_PLAIN = tuple(column.name for column in fields(Incident) if column.name not in ("device", "kinds"))
_COLUMNS = (*_PLAIN, "device", "kinds", "heads")
_plain = attrgetter(*_PLAIN)
_STORED = [
    sa.cast(schema.incidents.c[name], sa.Text) if name in ("device", "kinds") else schema.incidents.c[name]
    for name in FAULT_COLUMNS
]


def update_incidents(connection: sa.Connection, events: Iterable[Event]) -> list[Incident]:
    """Merge events that were appended, all with a time, into the incidents; returns those that changed, by start."""
    return merge_faults(connection, faults_of(events))


def merge_faults(connection: sa.Connection, faults: Iterable[FaultSummary]) -> list[Incident]:
    """The same with what events came to."""
    groups: dict[Group, list[FaultSummary]] = defaultdict(list)
    for fault in faults:
        groups[fault_group(fault)].append(fault)
    if not groups:
        return []
    stored = _stored(connection, groups)
    heads = {fault.id: fault.heads for faults in stored.values() for fault in faults}
    changed: list[FaultSummary] = []
    gone: set[str] = set()
    for group, new in groups.items():
        gone.update(_joined(group, stored.get(group, []), new, changed))
    made = {fault.id: fault for fault in changed}
    found = [fault.incident() for fault in made.values()]
    found = with_blast_radius(connection, sorted(found, key=lambda incident: (incident.start, incident.id)))
    # In a flood most only count on; the heads of an incident of very many kinds are long.
    grown = [incident for incident in found if heads.get(incident.id) == made[incident.id].heads]
    grow(connection, grown)
    gone.difference_update(incident.id for incident in grown)
    if gone:
        _remove(connection, gone)
    others = [incident for incident in found if heads.get(incident.id) != made[incident.id].heads]
    insert_rows(connection, schema.incidents, _COLUMNS, [_row(incident, made[incident.id]) for incident in others])
    return found


def _stored(connection: sa.Connection, groups: dict[Group, list[FaultSummary]]) -> dict[Group, list[FaultSummary]]:
    """The stored incidents that lie near the new faults, by group."""
    table = schema.incidents
    first = min(fault.start for new in groups.values() for fault in new) - NODE_GAP
    last = max(fault.end for new in groups.values() for fault in new) + NODE_GAP
    query = sa.select(*_STORED).where(table.c.end >= first, table.c.start <= last)
    nodes = {group[0] for group in groups}
    if len(nodes) <= _MANY:
        named = [node for node in nodes if node is not None]
        theirs = is_one_of(connection, table.c.node, named)
        query = query.where(theirs | table.c.node.is_(None) if None in nodes else theirs)
    found: dict[Group, list[FaultSummary]] = defaultdict(list)
    for row in connection.execute(query):
        fault = fault_from(row)
        found[fault_group(fault)].append(fault)
    return found


def _joined(
    group: Group, stored: Sequence[FaultSummary], new: Sequence[FaultSummary], changed: list[FaultSummary]
) -> set[str]:
    """Join what lies no further apart than the group's gap. Adds what holds something new to `changed`.

    Returns the ids of the stored incidents that went into those.
    """
    if not stored and len(new) == 1:
        changed += new
        return set()
    known = {id(fault) for fault in stored}
    gone: set[str] = set()
    for cluster in _clusters(sorted([*stored, *new], key=lambda fault: (fault.start, fault.end)), gap_of(group)):
        if all(id(fault) in known for fault in cluster):
            continue
        gone.update(fault.id for fault in cluster if id(fault) in known)
        cluster[0].join(*cluster[1:])
        changed.append(cluster[0])
    return gone


def _clusters(faults: Iterable[FaultSummary], gap: timedelta) -> Iterator[list[FaultSummary]]:
    """What belongs together, of faults by their start."""
    cluster: list[FaultSummary] = []
    end = None
    for fault in faults:
        if end is not None and fault.start - end > gap:
            yield cluster
            cluster, end = [], None
        cluster.append(fault)
        end = fault.end if end is None else max(end, fault.end)
    if cluster:
        yield cluster


def _remove(connection: sa.Connection, gone: set[str]) -> None:
    table = schema.incidents
    connection.execute(sa.delete(table).where(is_one_of(connection, table.c.id, gone)))


def _row(incident: Incident, fault: FaultSummary) -> tuple[Any, ...]:
    """The row of an incident, in the order of _COLUMNS."""
    return (
        *_plain(incident),
        orjson.dumps(incident.device).decode(),
        orjson.dumps(incident.kinds).decode(),
        fault.heads_text(),
    )

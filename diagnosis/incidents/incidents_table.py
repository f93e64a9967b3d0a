"""The incidents table: new events merged with the incidents that are stored, of the affected nodes alone.

    with writing(engine).begin() as connection:
        taken = append_events(connection, events, received=now)
        touched = update_incidents(connection, taken.new)

The same whatever the order of the calls, and at the cost of the new events alone: no stored event is read again.
So each event may be handed in once; `diagnosis/incidents/intake.py` sees to that.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import msgspec
import orjson
import sqlalchemy as sa

from diagnosis.incidents.domain_faults import DomainChange, DomainFault, take_domain_faults
from diagnosis.incidents.incident import (
    FAULT_COLUMNS,
    MANY,
    NODE_GAP,
    FaultSummary,
    Group,
    fault_from,
    fault_group,
    faults_of,
    gap_of,
)
from diagnosis.incidents.later_signs import LONGEST_INTERVAL, fault_shown, is_shown, join_sign, reach_of, target_of
from diagnosis.incidents.maintenance import ALONE
from diagnosis.incidents.root import IncidentHead
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
        nodes = {incident.node, *incident.nodes}
        sizes = [_size(job) for job in running if not nodes.isdisjoint(hosts(job.node_list))]
        if incident.domain is not None and incident.blast_radius is not None:
            sizes.append(incident.blast_radius)  # all of its domain, work or none
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
    "shown": "timestamptz",
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
_PLAIN = tuple(column.name for column in fields(Incident) if column.name not in ("device", "kinds", "nodes"))
_COLUMNS = (*_PLAIN, "device", "kinds", "heads", "nodes", "parts")
_plain = attrgetter(*_PLAIN)
_STORED = [
    sa.cast(schema.incidents.c[name], sa.Text) if name in ("device", "kinds") else schema.incidents.c[name]
    for name in FAULT_COLUMNS
]


def update_incidents(connection: sa.Connection, events: Iterable[Event]) -> list[Incident]:
    """Merge events that were appended, all with a time, into the incidents; returns those that changed, by start."""
    return merge_faults(connection, faults_of(events, in_parts=True))


def merge_faults(connection: sa.Connection, faults: Iterable[FaultSummary]) -> list[Incident]:
    """The same with what events came to."""
    groups: dict[Group, list[FaultSummary]] = defaultdict(list)
    rest, domains = take_domain_faults(connection, list(faults))
    of_domains = _put_domains(connection, domains)
    for fault in rest:
        groups[fault_group(fault)].append(fault)
    if not groups:
        return of_domains
    stored = _stored(connection, groups)
    heads = {fault.id: fault.heads for faults in stored.values() for fault in faults}
    changed: list[FaultSummary] = []
    gone: set[str] = set()
    for group, new in groups.items():
        mine: list[FaultSummary] = []
        shown = [(head, fault.end) for fault in new for head in fault.heads if is_shown(head)]
        gone.update(_joined(group, stored.get(group, []), new, mine))
        if group[0] is not None:
            gone.update(_signs_joined(mine, stored.get(group, []), gone))
            gone.update(_shown_faults(mine, stored.get(group, []), gone, shown))
        changed += mine
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
    return found + of_domains


def _put_domains(connection: sa.Connection, change: DomainChange) -> list[Incident]:
    """Write what became of NVLink domains; returns their incidents, by start."""
    if change.gone:
        _remove(connection, set(change.gone))
    if not change.made:
        return []
    made = {incident.id: (incident, fault) for fault in change.made for incident in (fault.incident(),)}
    found = sorted((incident for incident, _ in made.values()), key=lambda incident: (incident.start, incident.id))
    found = with_blast_radius(connection, found)
    insert_rows(connection, schema.incidents, _COLUMNS, [_row(incident, made[incident.id][1]) for incident in found])
    return found


def _stored(connection: sa.Connection, groups: dict[Group, list[FaultSummary]]) -> dict[Group, list[FaultSummary]]:
    """The stored incidents that lie near the new faults, by group."""
    table = schema.incidents
    faults = [fault for new in groups.values() for fault in new]
    since, may_have_signs = reach_of(faults)
    gap = max(gap_of(group) for group in groups)
    first = min([fault.start for fault in faults] + ([] if since is None else [since])) - max(gap, NODE_GAP)
    last = max(fault.end for fault in faults) + (LONGEST_INTERVAL if may_have_signs else max(gap, NODE_GAP))
    query = sa.select(*_STORED).where(table.c.end >= first, table.c.start <= last, table.c.domain.is_(None))
    nodes = {group[0] for group in groups}
    if len(nodes) <= _MANY:
        named = [node for node in nodes if node is not None]
        theirs = is_one_of(connection, table.c.node, named)
        theirs = theirs | table.c.kind.in_(ALONE) if MANY in groups else theirs
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


def _signs_joined(mine: list[FaultSummary], stored: Sequence[FaultSummary], gone: Collection[str]) -> set[str]:
    """Count later signs with their faults: new ones with what is stored, stored ones with what came late.

    Changes `mine`; returns the ids of the stored incidents whose place something in it takes.
    """
    ids = {fault.id for fault in stored}
    is_mine = {id(fault) for fault in mine}
    others = [fault for fault in stored if fault.id not in gone and id(fault) not in is_mine]
    taken: set[str] = set()
    for fault in sorted([*mine, *others], key=lambda one: (one.start, one.id)):
        target = target_of(fault, [*mine, *others])
        if target is None or (fault in others and target in others):
            continue
        mine[:] = [one for one in mine if one is not fault]
        others = [one for one in others if one is not fault and one is not target]
        taken.update({fault.id, target.id} & ids)
        if not any(one is target for one in mine):
            mine.append(target)
        join_sign(target, fault)
    return taken


def _shown_faults(
    mine: list[FaultSummary],
    stored: Sequence[FaultSummary],
    gone: Collection[str],
    shown: Sequence[tuple[IncidentHead, datetime]],
) -> set[str]:
    """Note which faults a gauge shows to stand, by what is new. Changes `mine`, returns ids as `_signs_joined` does."""
    taken: set[str] = set()
    for head, end in shown:
        others = [fault for fault in stored if fault.id not in gone and not any(one is fault for one in mine)]
        target = fault_shown(head, end, [*mine, *others])
        if target is not None and any(one is target for one in others):
            mine.append(target)
            taken.add(target.id)
    return taken


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


def _row(incident: Incident, fault: FaultSummary | DomainFault) -> tuple[Any, ...]:
    """The row of an incident, in the order of _COLUMNS."""
    return (
        *_plain(incident),
        orjson.dumps(incident.device).decode(),
        orjson.dumps(incident.kinds).decode(),
        fault.heads_text(),
        orjson.dumps(incident.nodes).decode() if incident.nodes else None,
        fault.parts_text() if isinstance(fault, DomainFault) else None,
    )

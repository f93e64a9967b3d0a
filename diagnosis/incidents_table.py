"""The incidents table: new events merged with the incidents that are stored, of the affected nodes alone.

    with writing(engine).begin() as connection:
        taken = append_events(connection, events, received=now)
        touched = update_incidents(connection, taken.new)

The same whatever the order of the calls, and at the cost of the new events alone: no stored event is read again.
So each event may be handed in once; `diagnosis/fold_intake.py` sees to that.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from typing import Any

import orjson
import sqlalchemy as sa

from diagnosis.blast import with_blast_radius
from diagnosis.fault import FAULT_COLUMNS, Fault, fault_from
from diagnosis.grown import grow
from diagnosis.incident import NODE_GAP, Group, fault_group, faults_of, gap_of
from store import schema
from store.bulk_rows import among, insert_rows
from store.event import Event
from store.incident import Incident

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


def merge_faults(connection: sa.Connection, faults: Iterable[Fault]) -> list[Incident]:
    """The same with what events came to."""
    groups: dict[Group, list[Fault]] = defaultdict(list)
    for fault in faults:
        groups[fault_group(fault)].append(fault)
    if not groups:
        return []
    stored = _stored(connection, groups)
    heads = {fault.id: fault.heads for faults in stored.values() for fault in faults}
    changed: list[Fault] = []
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


def _stored(connection: sa.Connection, groups: dict[Group, list[Fault]]) -> dict[Group, list[Fault]]:
    """The stored incidents that lie near the new faults, by group."""
    table = schema.incidents
    first = min(fault.start for new in groups.values() for fault in new) - NODE_GAP
    last = max(fault.end for new in groups.values() for fault in new) + NODE_GAP
    query = sa.select(*_STORED).where(table.c.end >= first, table.c.start <= last)
    nodes = {group[0] for group in groups}
    if len(nodes) <= _MANY:
        named = [node for node in nodes if node is not None]
        theirs = among(connection, table.c.node, named)
        query = query.where(theirs | table.c.node.is_(None) if None in nodes else theirs)
    found: dict[Group, list[Fault]] = defaultdict(list)
    for row in connection.execute(query):
        fault = fault_from(row)
        found[fault_group(fault)].append(fault)
    return found


def _joined(group: Group, stored: Sequence[Fault], new: Sequence[Fault], changed: list[Fault]) -> set[str]:
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


def _clusters(faults: Iterable[Fault], gap: timedelta) -> Iterator[list[Fault]]:
    """What belongs together, of faults by their start."""
    cluster: list[Fault] = []
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
    connection.execute(sa.delete(table).where(among(connection, table.c.id, gone)))


def _row(incident: Incident, fault: Fault) -> tuple[Any, ...]:
    """The row of an incident, in the order of _COLUMNS."""
    return (
        *_plain(incident),
        orjson.dumps(incident.device).decode(),
        orjson.dumps(incident.kinds).decode(),
        fault.heads_text(),
    )

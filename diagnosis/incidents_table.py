"""The incidents table: new events merged with the incidents that are stored, of the affected nodes alone.

    with writing(engine).begin() as connection:
        taken = append_events(connection, events, received=now)
        touched = update_incidents(connection, taken.new)

Idempotent, and the same whatever the order of the calls: where a new event does not simply come after a stored
incident, that incident is made again from the events that are stored.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from diagnosis.blast import with_blast_radius
from diagnosis.incident import (
    NO_FAULT_KINDS,
    NODE_GAP,
    Group,
    event_group,
    fold,
    fold_flood,
    gap_of,
    grouped,
    incident_from,
    incident_group,
    when,
)
from store import schema
from store.event import Device, Event
from store.incident import Incident
from store.read import event_of, incident_of
from store.sources import NO_FAULT

# An incident of more events (a flood) is not made again for a late one: an event that does not come after it is not
# counted.
FLOOD = 20_000
# More nodes, or more stretches of time, than this are read with one query over the whole window.
_MANY = 400
_SEVERAL = 20
_FETCH = 10_000
_COLUMNS = tuple(column.name for column in fields(Incident))
_DEVICE = tuple(column.name for column in fields(Device))


@dataclass(slots=True)
class _Cluster:
    """Stored incidents and new events of one group with no longer gap between them: one incident to be."""

    group: Group
    start: datetime
    end: datetime
    incidents: list[Incident] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def update_incidents(connection: sa.Connection, events: Sequence[Event]) -> list[Incident]:
    """Merge events that were appended into the incidents; returns the incidents that changed, by start."""
    groups = grouped(_dated(connection, events))
    if not groups:
        return []
    stored = _stored(connection, groups)
    clusters = [
        cluster
        for group, own in groups.items()
        for cluster in _clusters(group, stored.get(group, []), own)
        if cluster.events
    ]
    made, again = [], []
    for cluster in clusters:
        grown = _grown(cluster)
        if grown is None:
            again.append(cluster)
        else:
            made.append(grown)
    made += _made_again(connection, again)
    made = with_blast_radius(connection, sorted(made, key=lambda incident: (incident.start, incident.id)))
    _write(connection, [incident.id for cluster in clusters for incident in cluster.incidents], made)
    return made


def _dated(connection: sa.Connection, events: Sequence[Event]) -> list[Event]:
    """The events, those without a time dated with the moment that the store gave them."""
    undated = {event.id: event for event in events if event.time is None and event.id}
    if not undated:
        return list(events)
    table = schema.events
    dated: dict[str, datetime] = {}
    names = list(undated)
    for start in range(0, len(names), _FETCH):
        query = sa.select(table.c.id, table.c.time).where(table.c.id.in_(names[start : start + _FETCH]))
        dated.update((row.id, row.time) for row in connection.execute(query))
    return [event if event.time else replace(event, time=dated.get(event.id or "")) for event in events]


def _stored(connection: sa.Connection, groups: dict[Group, list[Event]]) -> dict[Group, list[Incident]]:
    """The stored incidents that lie near the new events, by group."""
    table = schema.incidents
    first = min(when(own[0]) for own in groups.values()) - NODE_GAP
    last = max(when(own[-1]) for own in groups.values()) + NODE_GAP
    query = sa.select(table).where(table.c.end >= first, table.c.start <= last)
    nodes = {group[0] for group in groups}
    if len(nodes) <= _MANY:
        named = [node for node in nodes if node is not None]
        query = query.where(
            table.c.node.in_(named) | table.c.node.is_(None) if None in nodes else table.c.node.in_(named)
        )
    found: dict[Group, list[Incident]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        incident = incident_of(row)
        found[incident_group(incident)].append(incident)
    return found


def _clusters(group: Group, incidents: Iterable[Incident], events: Iterable[Event]) -> list[_Cluster]:
    """What belongs together: neighbours in time no further apart than the group's gap."""
    spans: list[tuple[datetime, datetime, Incident | None, Event | None]] = [
        *((incident.start, incident.end, incident, None) for incident in incidents),
        *((when(event), when(event), None, event) for event in events),
    ]
    spans.sort(key=lambda span: (span[0], span[1]))
    gap = gap_of(group)
    clusters: list[_Cluster] = []
    for start, end, incident, event in spans:
        if not clusters or start - clusters[-1].end > gap:
            clusters.append(_Cluster(group, start, end))
        cluster = clusters[-1]
        cluster.end = max(cluster.end, end)
        if incident is not None:
            cluster.incidents.append(incident)
        if event is not None:
            cluster.events.append(event)
    return clusters


def _grown(cluster: _Cluster) -> Incident | None:
    """The incident of a cluster where the new events alone tell it; None where the stored ones are needed."""
    if not cluster.incidents:
        return incident_from(cluster.events)
    if len(cluster.incidents) > 1:
        return None
    (incident,) = cluster.incidents
    if incident.count >= FLOOD:
        return fold_flood(incident, cluster.events)
    later = all(when(event) > incident.end for event in cluster.events)
    return fold(incident, cluster.events) if later else None


def _made_again(connection: sa.Connection, clusters: Sequence[_Cluster]) -> list[Incident]:
    """The incidents of clusters from all their events: the stored ones and, were they not stored, the new ones."""
    if not clusters:
        return []
    if len(clusters) <= _SEVERAL:
        return [incident_from(_joined(_read(connection, [cluster]), cluster)) for cluster in clusters]
    by_group: dict[Group, list[Event]] = defaultdict(list)
    for event in _read(connection, clusters):
        by_group[event_group(event)].append(event)
    made = []
    for cluster in clusters:
        own = [event for event in by_group[cluster.group] if cluster.start <= when(event) <= cluster.end]
        made.append(incident_from(_joined(own, cluster)))
    return made


def _joined(stored: Iterable[Event], cluster: _Cluster) -> list[Event]:
    """A cluster's events by time, each once."""
    everything = {event.id: event for event in cluster.events}
    everything.update((event.id, event) for event in stored if event_group(event) == cluster.group)
    return sorted(everything.values(), key=lambda event: (when(event), event.id or ""))


def _read(connection: sa.Connection, clusters: Sequence[_Cluster]) -> list[Event]:
    """The stored fault events of the window that clusters span, on their nodes."""
    table = schema.events
    query = sa.select(table).where(
        table.c.time >= min(cluster.start for cluster in clusters),
        table.c.time <= max(cluster.end for cluster in clusters),
        table.c.severity != "info",
        table.c.source.not_in(sorted(NO_FAULT)),
        table.c.kind.not_in(sorted(NO_FAULT_KINDS)),
    )
    nodes = {cluster.group[0] for cluster in clusters}
    if len(nodes) == 1:
        node = next(iter(nodes))
        query = query.where(table.c.node.is_(None) if node is None else table.c.node == node)
    return [event_of(row) for row in connection.execute(query.order_by(table.c.time, table.c.id))]


def _write(connection: sa.Connection, old: Sequence[str], made: Sequence[Incident]) -> None:
    """Put the new incidents in the place of the old ones."""
    table = schema.incidents
    names = sorted(set(old))
    for start in range(0, len(names), _FETCH):
        connection.execute(sa.delete(table).where(table.c.id.in_(names[start : start + _FETCH])))
    if made:
        connection.execute(sa.insert(table), [_row(incident) for incident in made])


def _row(incident: Incident) -> dict[str, Any]:
    """The row of an incident; `asdict` copies so deeply that it would take most of the time of a bulk load."""
    row = {name: getattr(incident, name) for name in _COLUMNS}
    row["device"] = {name: getattr(incident.device, name) for name in _DEVICE}
    return row

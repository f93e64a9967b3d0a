"""Events to incidents: the events of one fault, coalesced.

    coalesce([xid 79 at 12:00:00, xid 45 at 12:00:01, link_down at 12:00:20])  # one node: one incident, head xid 79

Events of one node less than a minute apart are one incident; events that name no node are, when their device and
code are the same and they are less than 5 s apart. The grouping does not depend on the order of the input.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from diagnosis.root import Head, head_of, is_consequence, kind_key, root
from store.event import Device, Event, event_id
from store.incident import Incident
from store.sources import DETECTORS, NO_FAULT

NODE_GAP = timedelta(minutes=1)
DEVICE_GAP = timedelta(seconds=5)

# Kinds that report work or plans, not faults, whoever tells them.
NO_FAULT_KINDS = frozenset({"telemetry", "job", "outage", "iteration", "node_state", "pod_failed"})
# Fabric managers number this their own way: the code is no part of what went down.
_UNNUMBERED = frozenset({"link_down", "port_removed"})

Group: TypeAlias = tuple[str | None, str]


def is_fault(event: Event) -> bool:
    """Whether an event belongs into an incident: more than information, and from a source that reports faults."""
    return event.severity != "info" and event.source not in NO_FAULT and event.kind not in NO_FAULT_KINDS


def event_group(event: Event) -> Group:
    """Whose incidents an event may join: its node's, else those of the same device and code."""
    return (event.node, "") if event.node is not None else _group(event.device, event.name(), event.kind, event.code)


def incident_group(incident: Incident) -> Group:
    """The group of an incident."""
    if incident.node is not None:
        return incident.node, ""
    return _group(incident.device, incident.name, incident.kind, incident.code)


def _group(device: Device, name: str | None, kind: str, code: int | None) -> Group:
    """Events that name no node: by device (two that bear a name alone are two devices) and what happened."""
    key = kind_key(kind, None if kind in _UNNUMBERED else code)
    return None, f"{device.words(name) if device.is_bare() else device.key()} {key}"


def gap_of(group: Group) -> timedelta:
    """How far apart events of a group may be and still be one incident."""
    return DEVICE_GAP if group[0] is None else NODE_GAP


def coalesce(events: Iterable[Event]) -> list[Incident]:
    """The incidents of events in any order, by start. Events that are no fault or bear no time make none."""
    incidents = [incident_from(part) for group, own in grouped(events).items() for part in _parts(own, gap_of(group))]
    return sorted(incidents, key=lambda incident: (incident.start, incident.id))


def grouped(events: Iterable[Event]) -> dict[Group, list[Event]]:
    """The dated fault events of each group, by time."""
    groups: dict[Group, list[Event]] = defaultdict(list)
    for event in events:
        if event.time is not None and is_fault(event):
            groups[event_group(event)].append(event)
    for own in groups.values():
        own.sort(key=lambda event: (event.time, event.id or "", event.line or 0))
    return groups


def _parts(events: Sequence[Event], gap: timedelta) -> Iterator[list[Event]]:
    """Events in time order, cut where nothing happened for longer than `gap`."""
    part: list[Event] = []
    for event in events:
        if part and when(event) - when(part[-1]) > gap:
            yield part
            part = []
        part.append(event)
    if part:
        yield part


def when(event: Event) -> datetime:
    """The time of an event that has one.

    Raises:
        ValueError: it has none; callers have filtered those.
    """
    if event.time is None:
        raise ValueError(f"the event {event.id} bears no time")
    return event.time


def incident_from(events: Sequence[Event]) -> Incident:
    """The incident of one fault's events, at least one, in time order."""
    first = events[0]
    kinds = Counter(kind_key(event.kind, event.code) for event in events)
    head = root(_candidates(events), kinds)
    return incident_of_head(head, first.id or event_id(first), first.node, when(first), when(events[-1]), kinds)


def _candidates(events: Sequence[Event]) -> list[Head]:
    """One head for each different thing that happened: the earliest of its kind, code, severity and device."""
    seen: dict[tuple[object, ...], Head] = {}
    for event in events:
        follows = event.attributes.get("caused_by") is not None
        where = (event.device.key(), event.name(), event.source in DETECTORS)
        key = (event.kind, event.code, event.severity, follows, *where)
        if key not in seen:
            seen[key] = head_of(event, when(event))
    return list(seen.values())


def incident_of_head(
    head: Head, name: str, node: str | None, start: datetime, end: datetime, kinds: Counter[str]
) -> Incident:
    """The incident that a head stands for."""
    return Incident(
        id=name,
        node=node,
        start=start,
        end=end,
        kind=head.kind,
        code=head.code,
        severity=head.severity,
        cause=head.cause,
        action=head.action,
        device=head.device,
        message=head.message,
        count=kinds.total(),
        kinds=dict(sorted(kinds.items())),
        source=head.source,
        name=head.name,
    )


def fold(incident: Incident, events: Sequence[Event]) -> Incident | None:
    """An incident with later events added, the same as coalescing all of its events again.

    None where that cannot be told without them: what it was called by turns out to be a mere consequence, or a
    detector repeats what another witness says.
    """
    if incident.source in DETECTORS or any(event.source in DETECTORS for event in events):
        return None
    kinds = _counted(incident, events)
    return None if is_consequence(_present(incident), kinds) else _grown(incident, events, kinds)


def fold_flood(incident: Incident, events: Sequence[Event]) -> Incident:
    """An incident of very many events with more added, without reading the others again.

    Events that do not come after it may be among the others already: they may name it, but are not counted.
    """
    later = [event for event in events if when(event) > incident.end]
    return _grown(incident, events, _counted(incident, later))


def _counted(incident: Incident, events: Sequence[Event]) -> Counter[str]:
    return Counter(incident.kinds) + Counter(kind_key(event.kind, event.code) for event in events)


def _present(incident: Incident) -> Head:
    """The head that an incident has."""
    return Head(
        incident.start,
        incident.kind,
        incident.code,
        incident.severity,
        incident.cause,
        incident.action,
        incident.device,
        incident.message,
        incident.source,
        incident.name,
    )


def _grown(incident: Incident, events: Sequence[Event], kinds: Counter[str]) -> Incident:
    head = root([_present(incident), *_candidates(events)], kinds)
    end = max(incident.end, when(events[-1]))
    grown = incident_of_head(head, incident.id, incident.node, incident.start, end, kinds)
    return replace(grown, blast_radius=incident.blast_radius)

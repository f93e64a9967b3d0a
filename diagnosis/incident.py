"""Events to incidents: the events of one fault, coalesced.

    coalesce([xid 79 at 12:00:00, xid 45 at 12:00:01, link_down at 12:00:20])  # one node: one incident, head xid 79

Events of one node less than a minute apart are one incident; events that name no node are, when their device and
code are the same and they are less than 5 s apart. The grouping does not depend on the order of the input.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeAlias

from diagnosis.fault import Fault, FaultTally, when
from diagnosis.root import kind_key
from store.event import Device, Event
from store.incident import Incident
from store.sources import NO_FAULT

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


def fault_group(fault: Fault) -> Group:
    """The group of a fault."""
    if fault.node is not None:
        return fault.node, ""
    head = fault.heads[0]
    return _group(head.device, head.name, head.kind, head.code)


def _group(device: Device, name: str | None, kind: str, code: int | None) -> Group:
    """Events that name no node: by device (two that bear a name alone are two devices) and what happened."""
    key = kind_key(kind, None if kind in _UNNUMBERED else code)
    return None, f"{device.words(name) if device.is_bare() else device.key()} {key}"


def gap_of(group: Group) -> timedelta:
    """How far apart events of a group may be and still be one incident."""
    return DEVICE_GAP if group[0] is None else NODE_GAP


def coalesce(events: Iterable[Event]) -> list[Incident]:
    """The incidents of events in any order, by start. Events that are no fault or bear no time make none."""
    incidents = [fault.incident() for fault in faults_of(events)]
    return sorted(incidents, key=lambda incident: (incident.start, incident.id))


def faults_of(events: Iterable[Event]) -> list[Fault]:
    """What events in any order come to. Those that are no fault or bear no time come to nothing."""
    made: list[FaultTally] = []
    open_tallies: dict[Group, FaultTally] = {}
    for event in sorted((event for event in events if event.time is not None and is_fault(event)), key=_order):
        time, group = when(event), event_group(event)
        tally = open_tallies.get(group)
        if tally is None or time - tally.end > gap_of(group):
            tally = open_tallies[group] = FaultTally(event, time)
            made.append(tally)
        tally.add(event, time)
    return [tally.fault() for tally in made]


def _order(event: Event) -> tuple[datetime | None, str, int]:
    return event.time, event.id or "", event.line or 0

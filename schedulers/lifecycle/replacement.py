"""Hints of machines that are there no more: a new machine is not to inherit the hold of the old one. Pure, but `read`.

    replaced(hints, machines, now)     # {hint id: "gpu-017 is another machine since 2025-03-01T12:00:00Z"}

A node's name stays when its machine goes. That it went is told by its record (`in_service_since` after the hint,
`in_service_until` past), or by the device that the hint blames: another serial number or uuid in its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from schedulers.policy.facts import acted
from store.records.event import format_time
from store.records.hint import Hint
from store.tables import schema
from store.tables.bulk_rows import is_one_of

# So many events of a node are looked through for the numbers of its devices.
_MOST = 200
_NUMBERS = ("serial", "uuid")


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A device as some event named it: where it sits, and its numbers as far as they were told."""

    node: str
    place: str  # its PCI address, else its index
    time: datetime
    numbers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MachineRecords:
    """When nodes were in service; the devices that hints blame, by hint; the devices seen since, by node."""

    since: Mapping[str, datetime]
    until: Mapping[str, datetime]
    blamed: Mapping[str, DeviceIdentity] = field(default_factory=dict)
    seen: Mapping[str, Sequence[DeviceIdentity]] = field(default_factory=dict)


def replaced(hints: Iterable[Hint], machines: MachineRecords, now: datetime) -> dict[str, str]:
    """Which hints speak of a machine or part that is there no more, and how that is known."""
    found = {}
    for hint in hints:
        why = _why(hint, machines, now)
        if why is not None:
            found[hint.id] = f"{hint.node} {why}"
    return found


def _why(hint: Hint, machines: MachineRecords, now: datetime) -> str | None:
    since, until = machines.since.get(hint.node), machines.until.get(hint.node)
    if since is not None and acted(hint) < since <= now:
        return f"is another machine since {format_time(since)}"
    if until is not None and until <= now:
        return f"left service at {format_time(until)}"
    blamed = machines.blamed.get(hint.id)
    for part in machines.seen.get(hint.node, ()) if blamed is not None else ():
        if blamed is None or part.place != blamed.place or part.time <= blamed.time:
            continue
        for name in _NUMBERS:
            before, after = blamed.numbers.get(name), part.numbers.get(name)
            if before and after and before != after:
                return f"has another device at {part.place}: its {name} was {before}, and is {after}"
    return None


def read_machines(connection: sa.Connection, hints: Sequence[Hint]) -> MachineRecords:
    """What is known of the machines of open hints: few nodes, and their events since the hints' faults."""
    nodes, named = schema.nodes.c, sorted({hint.node for hint in hints})
    query = sa.select(nodes.node, nodes.in_service_since, nodes.in_service_until)
    service = connection.execute(query.where(is_one_of(connection, nodes.node, named))).all() if named else []
    blamed = _blamed(connection, hints)
    return MachineRecords(
        {row[0]: row[1] for row in service if row[1] is not None},
        {row[0]: row[2] for row in service if row[2] is not None},
        blamed,
        {part.node: _identities(connection, part) for part in blamed.values()},
    )


def _blamed(connection: sa.Connection, hints: Sequence[Hint]) -> dict[str, DeviceIdentity]:
    """The devices of the hints' incidents, as the events that began these name them: they bear the same id."""
    incidents = {hint.evidence.incident: hint for hint in hints if hint.evidence.incident is not None}
    if not incidents:
        return {}
    table = schema.events
    query = sa.select(table.c.id, table.c.node, table.c.time, table.c.device, table.c.attributes)
    found = {}
    for row in connection.execute(query.where(is_one_of(connection, table.c.id, list(incidents)))):
        part = _part(row)
        if part is not None and part.numbers:
            found[incidents[row.id].id] = part
    return found


def _identities(connection: sa.Connection, blamed: DeviceIdentity) -> list[DeviceIdentity]:
    """What a node's events since say of its devices; the newest of them."""
    table = schema.events
    query = sa.select(table.c.node, table.c.time, table.c.device, table.c.attributes)
    query = query.where(table.c.node == blamed.node, table.c.time > blamed.time)
    rows = connection.execute(query.order_by(table.c.time.desc()).limit(_MOST))
    parts = [part for row in rows if (part := _part(row)) is not None and part.numbers]
    return [part for part in parts if part.place == blamed.place]


def _part(row: Any) -> DeviceIdentity | None:
    """The device of an event; None where it does not say which."""
    device, attributes = row.device, row.attributes or {}
    place = device.get("pci") or (None if device.get("index") is None else f"{device['type']} {device['index']}")
    if place is None or row.node is None:
        return None
    numbers = {name: str(attributes[name]) for name in _NUMBERS if attributes.get(name)}
    if device.get("uuid"):
        numbers["uuid"] = str(device["uuid"])
    return DeviceIdentity(row.node, place, row.time, numbers)

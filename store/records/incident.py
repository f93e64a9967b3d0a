"""An incident: the events of one fault, coalesced."""

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from store.records.event import Action, Cause, Device, Severity


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault: when it began and last showed, the worst it said, and the device held to be the culprit.

    `id` is that of its first event, so coalescing again gives the same incident.
    `source` said what names it; `name` is the device's where it has one (nvme0, swp51, a DIMM's label).
    `kinds` counts its events by `kind` or `kind:code`; `blast_radius` is the number of nodes of the runs it stopped.
    `link` is that of the device, where what names it tells one. `domain` is the NVLink domain whose nodes (`nodes`) one
    fault took along: `node` alone is the culprit, None where no node is known to be.
    `shown` is when a gauge last showed that the fault stands, long after its own events; None where none did.
    """

    id: str
    node: str | None
    start: datetime
    end: datetime
    kind: str
    code: int | None
    severity: Severity
    cause: Cause
    action: Action
    device: Device
    message: str
    count: int
    kinds: dict[str, int] = field(default_factory=dict)
    blast_radius: int | None = None
    source: str | None = None
    name: str | None = None
    link: int | None = None
    domain: str | None = None
    nodes: tuple[str, ...] = ()
    shown: datetime | None = None


_INCIDENT = tuple(field.name for field in fields(Incident))


def incident_of(row: Any) -> Incident:
    """The incident of a row of `incidents`."""
    values = {name: row[name] for name in _INCIDENT}
    return Incident(**{**values, "device": Device(**row["device"]), "nodes": tuple(row["nodes"] or ())})

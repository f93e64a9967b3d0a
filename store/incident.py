"""An incident: the events of one fault, coalesced."""

from dataclasses import dataclass, field
from datetime import datetime

from store.event import Action, Cause, Device, Severity


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault: when it began and last showed, the worst it said, and the device held to be the culprit.

    `id` is that of its first event, so coalescing again gives the same incident.
    `source` said what names it; `name` is the device's where it has one (nvme0, swp51, a DIMM's label).
    `kinds` counts its events by `kind` or `kind:code`; `blast_radius` is the number of nodes of the runs it stopped.
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

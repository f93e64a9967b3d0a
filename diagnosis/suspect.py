"""A culprit: one suspect of a stop, with its score, the reason in an operator's words and the evidence."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from store.event import Cause, Device, format_time


@dataclass(frozen=True, slots=True)
class Culprit:
    """One suspect. `events` are ids; `incident` is None where an outage alone speaks against the node."""

    rank: int
    node: str | None
    device: Device
    incident: str | None
    score: float
    reason: str
    events: tuple[str, ...] = ()
    time: datetime | None = None
    cause: Cause = "unknown"
    nodes: tuple[str, ...] = ()
    name: str | None = None  # of the device, where it has one

    def to_json(self) -> dict[str, Any]:
        """The suspect as plain values."""
        told = asdict(self)
        told["time"] = None if self.time is None else format_time(self.time)
        return told

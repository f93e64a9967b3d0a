"""What the spool had to give up: counted, and told upstream as events `spool_loss` that are themselves durable.

A loss stays open until its event is in the spool. What comes again within a minute is added to the next event, so that
a disk that drops something each second does not speak each second.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from store.event import Event, format_time, with_id

Queue: TypeAlias = Literal["events", "telemetry"]
Reason: TypeAlias = Literal["full", "damaged", "missing"]
_AGAIN_S = 60.0
_UNITS: Mapping[tuple[str, str], str] = {
    ("events", "full"): "events of severity info were given up for room",
    ("telemetry", "full"): "roll-ups were given up for room",
    ("events", "damaged"): "bytes of events were unreadable",
    ("telemetry", "damaged"): "bytes of telemetry were unreadable",
    ("events", "missing"): "segments of events were gone from the disk",
    ("telemetry", "missing"): "segments of telemetry were gone from the disk",
}


@dataclass(slots=True)
class Loss:
    """One kind of loss that no event has told yet; `count` is of items, bytes (damaged) or segments (missing)."""

    queue: Queue
    reason: Reason
    count: int
    first: str
    last: str


class Losses:
    """Every loss of one spool. Not safe for several threads: the spool locks."""

    def __init__(self, kept: Iterable[Mapping[str, Any]] = ()) -> None:
        """`kept` is what `open_losses` gave before a restart."""
        self._open: dict[tuple[Queue, Reason], Loss] = {}
        self._told_at: dict[tuple[Queue, Reason], float] = {}  # monotonic
        self.totals: Counter[tuple[Queue, Reason]] = Counter()  # since this process began
        for entry in kept:
            loss = Loss(**entry)
            self._open[loss.queue, loss.reason] = loss

    def add(self, queue: Queue, reason: Reason, count: int) -> None:
        """Something is lost, now."""
        if count <= 0:
            return
        self.totals[queue, reason] += count
        now = format_time(datetime.now(UTC))
        loss = self._open.setdefault((queue, reason), Loss(queue, reason, 0, now, now))
        loss.count += count
        loss.last = now

    def open_losses(self) -> list[Loss]:
        """Those that no event has told yet."""
        return [self._open[key] for key in sorted(self._open)]

    def due(self, node: str) -> list[Event]:
        """The events to save now: of each open loss, unless one of its kind was told within a minute."""
        now = time.monotonic()
        return [
            loss_event(node, loss)
            for key, loss in sorted(self._open.items())
            if now - self._told_at.get(key, -_AGAIN_S) >= _AGAIN_S
        ]

    def told(self, events: Iterable[Event]) -> None:
        """Those of `due` are in the spool."""
        for event in events:
            key = next(key for key in self._open if key == (event.attributes["queue"], event.attributes["reason"]))
            self._told_at[key] = time.monotonic()
            del self._open[key]


def loss_event(node: str, loss: Loss) -> Event:
    """The sidecar itself lost something; the same loss is the same event, so that telling it twice changes nothing."""
    event = Event(
        time=datetime.fromisoformat(loss.last),
        node=node,
        source="sidecar",
        kind="spool_loss",
        severity="warning",
        cause="host",
        action="none",
        message=f"The sidecar's spool: {loss.count} {_UNITS[loss.queue, loss.reason]}.",
        attributes={
            "count": loss.count,
            "reason": loss.reason,
            "queue": loss.queue,
            "first": loss.first,
            "last": loss.last,
        },
    )
    return with_id(event)

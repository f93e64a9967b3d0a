"""States of ports to events: a link that went down, came up, waits, or runs narrower or slower than it did.

Pure; its state is plain JSON. A port that is down when it is first seen may never have been cabled: no event. What a
link can do is the most that it was seen to do; InfiniBand at 1X is never meant.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from collectors.sysfs_ports import Port
from store.catalog import judged
from store.event import Attribute, Device, Event, with_id

_ACTIVE = 4
_DISABLED = 3
_LINK_UP = 5


@dataclass(slots=True)
class Seen:
    """A port as it was last told of."""

    state: str  # up, down, waiting
    best_gb_per_s: float = 0.0
    told_gb_per_s: float = 0.0  # what was told last; 0: nothing


class LinkWatch:
    """Every port of a node. `origin` is part of the ids."""

    def __init__(self, node: str, origin: str, state: Mapping[str, Any] | None = None) -> None:
        self._node = node
        self._origin = origin
        self._seen = {name: Seen(**seen) for name, seen in (state or {}).items()}

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {name: {slot: getattr(seen, slot) for slot in Seen.__slots__} for name, seen in self._seen.items()}

    def add(self, port: Port, time: datetime) -> Iterator[Event]:
        """One look at a port."""
        now = _state_of(port)
        if now is None:
            return
        name = f"{port.device}/{port.number}"
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = Seen(now)
        elif seen.state != now:
            yield self._changed(port, time, now)
            seen.state = now
        if now == "up" and port.gb_per_s:
            yield from self._rate(port, time, seen, port.gb_per_s)

    def _changed(self, port: Port, time: datetime, now: str) -> Event:
        if now == "up":
            return self._event(port, time, ("link_up", "fabric"), "is up again")
        if now == "waiting":
            return self._event(port, time, ("link_inactive", ""), f"has a link and is not active ({port.state})")
        if port.physical_id == _DISABLED:
            return self._event(port, time, ("link_down", "admin"), "was disabled")
        return self._event(port, time, ("link_down", "fabric"), f"is down ({port.physical or port.state})")

    def _rate(self, port: Port, time: datetime, seen: Seen, gb_per_s: float) -> Iterator[Event]:
        seen.best_gb_per_s = max(seen.best_gb_per_s, gb_per_s)
        lanes = 4 if port.width == "1X" and not port.ethernet else 1
        could = max(seen.best_gb_per_s, gb_per_s * lanes)
        if gb_per_s < could and seen.told_gb_per_s != gb_per_s:
            seen.told_gb_per_s = gb_per_s
            message = f"runs at {_rate_of(port)} and could do {could:g} Gb/s"
            yield self._event(port, time, ("link_degraded", ""), message, {"gb_per_s_capable": could})
        elif gb_per_s >= could and seen.told_gb_per_s:
            seen.told_gb_per_s = 0.0
            yield self._event(port, time, ("link_restored", ""), f"runs at {_rate_of(port)} again")

    def _event(
        self,
        port: Port,
        time: datetime,
        kind: tuple[str, str],
        message: str,
        more: Mapping[str, Attribute] | None = None,
    ) -> Event:
        attributes: dict[str, Attribute] = {"name": port.device, **(more or {})}
        known = {
            "state": port.state,
            "physical_state": port.physical,
            "width_now": port.width,
            "speed_now": port.speed,
            "gb_per_s": port.gb_per_s,
        }
        attributes |= {key: value for key, value in known.items() if value is not None}
        event = Event(
            time=time,
            node=self._node,
            source="infiniband",
            kind=kind[0],
            device=Device(type="hca", pci=port.pci, uuid=port.guid, port=port.number),
            message=f"{port.device} port {port.number} {message}",
            attributes=attributes,
        )
        return with_id(judged(event, kind[1]), self._origin)


def _state_of(port: Port) -> str | None:
    """What a port's two states come to; None where they could not be read."""
    if port.state_id is None:
        return None
    if port.state_id == _ACTIVE:
        return "up"
    link = port.physical_id in (None, _LINK_UP) and port.state_id != 1
    return "waiting" if link else "down"


def _rate_of(port: Port) -> str:
    lanes = " ".join(part for part in (port.width, port.speed) if part)
    return f"{port.gb_per_s:g} Gb/s" + (f" ({lanes})" if lanes else "")

"""What a program prints again and again, to what is new in it. Pure; its state is plain JSON.

A counter becomes its increase since the last run: the tools print what was counted since it was cleared, and nothing of
one that is 0. Anything else is told when it appears, and again only after a run that lacked it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from collectors.decoder import number
from store.event import Attribute, Event, event_id

# A fabric of 100,000 GPUs has some 50,000 ports; few of them have counted an error.
MOST_COUNTERS = 20_000
MOST_STANDING = 5_000
_COUNTER = "counter"
# Attributes that say where a counter is, besides its device.
_PLACE = ("lid", "path", "hca", "switch")


class Repeats:
    """Everything that one program ever printed, as far as it matters."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._counters: dict[str, int] = dict(saved.get("counters", {}))
        self._standing: set[str] = set(saved.get("standing", ()))
        self._ran = bool(saved.get("ran"))
        self.left_out = 0  # counters beyond MOST_COUNTERS

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {"counters": self._counters, "standing": sorted(self._standing), "ran": self._ran}

    def add(self, events: Iterable[Event], now: datetime, origin: str) -> list[Event]:
        """The new ones of a run that began at `now`.

        Args:
            origin: the run's own name, for what bears no time: it is an observation of this moment, and no other's.
        """
        standing: set[str] = set()
        found = []
        for event in events:
            if event.kind == _COUNTER and isinstance(event.attributes.get("count"), int):
                found += [self._dated(rise, now, origin) for rise in self._rise(event)]
                continue
            seen = event_id(replace(event, line=None))
            if len(standing) < MOST_STANDING:
                standing.add(seen)
            if seen not in self._standing:
                found.append(self._dated(event, now, origin))
        self._standing, self._ran = standing, True
        return found

    def _rise(self, event: Event) -> Iterator[Event]:
        name = event.attributes.get("counter")
        count = int(event.attributes["count"] or 0)
        where = "/".join(str(event.attributes[key]) for key in _PLACE if key in event.attributes)
        key = f"{event.node or ''}|{event.device.key()}|{where}|{name}"
        before = self._counters.get(key)
        if before is None and len(self._counters) >= MOST_COUNTERS:
            self.left_out += 1
            return
        self._counters[key] = count
        if before is None and not self._ran:
            return  # where it stands, not an increase
        increase = count - (before or 0) if count >= (before or 0) else count
        if increase > 0:
            attributes: dict[str, Attribute] = {**event.attributes, "count": increase, "total": count}
            yield replace(event, message=f"{name} rose by {increase}", attributes=attributes)

    @staticmethod
    def _dated(event: Event, now: datetime, origin: str) -> Event:
        if event.time is not None:
            return number(event, "")  # its own moment tells it apart: printed again, it is the same
        return replace(number(event, f"{origin}:{event.line}"), time=now)

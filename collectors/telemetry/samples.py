"""Samples of a source to roll-ups of each hour, and to events of what changed. Pure but for a timer.

sampled = Sampled(origin, rollup_interval_s, state)     # looks at everything, one after the other: pages
events, rollups = sampled.take(samples, now)
sampled.state()

followed = NodeSamples(origin, most_devices, state)    # samples in any cut, some of them twice: what others send
events, rollups = followed.take(samples, now)
followed.state()
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from collectors.telemetry.device_events import left_out_event
from collectors.telemetry.device_state import key_of
from collectors.telemetry.device_watch import DeviceWatch
from collectors.telemetry.rollups import NodeHours
from store.records.event import Event
from store.records.telemetry import Rollup, Sample


class Sampled:
    """The open hours and every device seen through one source. `origin` tells its events' ids from others'."""

    def __init__(
        self,
        origin: str,
        rollup_interval_s: float,
        state: Mapping[str, Any] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        saved = state or {}
        self._origin = origin
        self._hours = NodeHours(saved.get("hours"))
        self._watch = DeviceWatch(origin, saved.get("watch"))
        self._left_out = bool(saved.get("left_out"))
        self._rollup_interval_s = rollup_interval_s
        self._monotonic = monotonic
        self._partial_due_s: float | None = None

    def take(self, samples: Sequence[Sample], now: datetime) -> tuple[list[Event], list[Rollup]]:
        """One look at everything; `now` is when, for what is missing in it. The open hours are given at an interval."""
        events = self._watch.add(samples, now)
        rollups = self._hours.add(samples)
        now_s = self._monotonic()
        if self._partial_due_s is None:
            self._partial_due_s = now_s
        elif now_s >= self._partial_due_s:
            self._partial_due_s = now_s + self._rollup_interval_s
            rollups += self._hours.partial()
        if self._hours.left_out and not self._left_out and samples:
            self._left_out = True
            node, source = samples[0].node, samples[0].source
            events.append(left_out_event(node, now, source, self._hours.left_out, self._origin))
        return events, rollups

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {"hours": self._hours.state(), "watch": self._watch.state(), "left_out": self._left_out}


# How often the open hour of a node that is followed is given.
_PARTIAL_S = 60.0


# Of these, the newest, is known which devices were taken: twice as many as a body may hold.
_MOMENTS = 240


class NodeSamples:
    """The open hour and every device of one node whose samples others bring: cut anywhere, late, or twice.

    A moment is judged once a later one is there. Pure: the same samples and state give the same.

    Attributes:
        beyond: values of devices beyond the most that a node may have, over all its time. late: values older than
            what is known of their device, of a moment at which it was not taken. Both are left out.
    """

    def __init__(self, origin: str, most_devices: int, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._origin = origin
        self._hours = NodeHours(saved.get("hours"))
        self._watch = DeviceWatch(origin, saved.get("watch"))
        self._left_out = bool(saved.get("left_out"))
        self._given_s: float = saved.get("given_s", 0.0)
        # By moment, a bit for each device, at its place: a list of their names would be the larger part of a state.
        self._taken: dict[float, int] = {time_s: int(bits, 16) for time_s, bits in saved.get("taken", ())}
        self._most_devices = most_devices
        self.beyond = 0
        self.late = 0

    def take(
        self, samples: Iterable[Sample], now: datetime, look: Callable[[], None] = lambda: None
    ) -> tuple[list[Event], list[Rollup]]:
        """What some more samples tell; `now` is when they came. `look` is called between: what it raises ends it."""
        fresh = self._news(samples, look)
        if not fresh:
            return [], []
        events = self._watch.follow(fresh, look)
        self._note_taken(fresh)
        look()
        rollups = self._hours.add(sorted(fresh, key=lambda sample: sample.time))
        if not 0 <= now.timestamp() - self._given_s < _PARTIAL_S:
            self._given_s = now.timestamp()
            rollups += self._hours.partial()
        if self._hours.left_out and not self._left_out:
            self._left_out = True
            node, source = fresh[0].node, fresh[0].source
            events.append(left_out_event(node, now, source, self._hours.left_out, self._origin))
        return events, rollups

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        taken = [[time_s, f"{bits:x}"] for time_s, bits in self._taken.items()]
        told = {"left_out": self._left_out, "given_s": self._given_s, "taken": taken}
        return {"hours": self._hours.state(), "watch": self._watch.state(), **told}

    def _news(self, samples: Iterable[Sample], look: Callable[[], None]) -> list[Sample]:
        """Samples less what was taken before, what is older, and devices that are too many."""
        places = self._watch.places()
        found: list[Sample] = []
        for sample in samples:
            look()
            key = key_of(sample)
            if key not in places:
                if len(places) >= self._most_devices:
                    self.beyond += len(sample.values)
                    continue
                places[key] = len(places)
            fresh = self._watch.news(sample)
            if fresh is not None:
                found.append(fresh)
            elif not self._taken.get(sample.time.timestamp(), 0) >> places[key] & 1:
                self.late += len(sample.values)
        return found

    def _note_taken(self, samples: Iterable[Sample]) -> None:
        places = self._watch.places()
        for sample in samples:
            time_s = sample.time.timestamp()
            self._taken[time_s] = self._taken.get(time_s, 0) | 1 << places[key_of(sample)]
        self._taken = dict(islice(sorted(self._taken.items(), reverse=True), _MOMENTS))

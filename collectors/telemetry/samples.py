"""Samples of a source to roll-ups of each hour, and to events of what changed. Pure but for a timer.

sampled = Sampled(origin, rollup_interval_s, state)     # looks at everything, one after the other: pages
events, rollups = sampled.take(samples, now)
sampled.state()

followed = NodeSamples(origin, state)                  # samples in any cut, some of them twice: what others send
events, rollups = followed.take(samples, now)
followed.state()
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from collectors.telemetry.device_events import left_out_event
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


class NodeSamples:
    """The open hour and every device of one node whose samples others bring: cut anywhere, late, or twice.

    A moment is judged once a later one is there. Pure: the same samples and state give the same.
    """

    def __init__(self, origin: str, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._origin = origin
        self._hours = NodeHours(saved.get("hours"))
        self._watch = DeviceWatch(origin, saved.get("watch"))
        self._left_out = bool(saved.get("left_out"))
        self._given_s: float = saved.get("given_s", 0.0)

    def take(self, samples: Sequence[Sample], now: datetime) -> tuple[list[Event], list[Rollup]]:
        """What some more samples tell; `now` is when they came."""
        fresh = self._watch.news(samples)
        if not fresh:
            return [], []
        events = self._watch.follow(fresh)
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
        told = {"left_out": self._left_out, "given_s": self._given_s}
        return {"hours": self._hours.state(), "watch": self._watch.state(), **told}

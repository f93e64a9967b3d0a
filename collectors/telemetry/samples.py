"""Samples of a source to roll-ups of each hour, and to events of what changed. Pure but for a timer.

sampled = Sampled(origin, rollup_interval_s, state)
events, rollups = sampled.take(samples, now)
sampled.state()
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from collectors.telemetry.device_events import (
    Finding,
    counters_began_anew,
    device_missing,
    device_returned,
    exporter_event,
    finding_event,
    left_out_event,
    metric_event,
    rise,
    xid_changed,
)
from collectors.telemetry.rollups import NodeHours
from store.records.event import Device, Event
from store.records.fault_catalog import Counter, counter, link_counters
from store.records.telemetry import Rollup, Sample

# Samples to events: counters that rose or began anew, devices and values that vanished and came back.
#
# Pure; its state is plain JSON.
#
# A counter's first value is where it stands, not an increase. One that fell began anew (the driver was loaded again):
# what it shows is the increase since. A device that another took the place of (its UUID changed) begins anew, silently.
# A device, or a value of a device that is there, is missing when two scrapes in a row lack it: a single gap is most
# often
# the exporter's. Of values one event tells for all devices of the node: a driver that is loaded again takes many.
# Where a page speaks for many nodes and one of them is gone from it whole, that node's exporter is down; of its devices
# nothing is known meanwhile.

MISSES = 2
# Scrapes after which a value that never came back is forgotten: a day of one each 15 s.
_FORGOTTEN = 5760
# Values that are only there while something is wrong: their end is no loss.
_COME_AND_GO = ("error_code", "afid_", "xid_")


@dataclass(slots=True)
class DeviceState:
    """One device, as it was last seen. `absent`: values that it had, and for how many scrapes they are gone."""

    node: str
    type: str
    index: int | None
    name: str | None = None
    port: int | None = None
    source: str = "dcgm"
    uuid: str | None = None
    pci: str | None = None
    last: dict[str, float] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    misses: int = 0

    def device(self) -> Device:
        """Where it is."""
        return Device(type=self.type, pci=self.pci, index=self.index, uuid=self.uuid, port=self.port)

    def state(self) -> dict[str, Any]:
        """As plain JSON: asked for at every scrape, and `asdict` takes ten times as long."""
        state = {name: getattr(self, name) for name in self.__slots__}
        return {**state, "last": self.last.copy(), "absent": self.absent.copy()}

    def note_absent(self, sample: Sample) -> None:
        """Count the scrapes that lack a value which was there."""
        if not self.absent and sample.values.keys() == self.last.keys():
            return
        for name in self.last.keys() - sample.values.keys():
            if not name.startswith(_COME_AND_GO):
                self.absent[name] = self.absent.get(name, 0) + 1
        for name in [name for name, misses in self.absent.items() if name in sample.values or misses > _FORGOTTEN]:
            if self.absent.pop(name) > _FORGOTTEN:
                self.last.pop(name, None)


class DeviceWatch:
    """Every device ever seen through one source. `origin` is part of the ids: the exporter's address."""

    def __init__(self, origin: str, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._origin = origin
        watched = (DeviceState(**one) for one in saved.get("devices", ()))
        self._devices = {_key(one.node, one.type, one.index, one.name, one.port): one for one in watched}
        self._silent: dict[str, int] = dict(saved.get("silent", {}))  # nodes gone from the page, for how many scrapes
        self._lost = {(node, name) for node, name in saved.get("lost", ())}  # values missing on a node

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        devices = [one.state() for one in self._devices.values()]
        return {"devices": devices, "silent": dict(self._silent), "lost": [list(pair) for pair in sorted(self._lost)]}

    def add(self, samples: Sequence[Sample], now: datetime) -> list[Event]:
        """One scrape; `now` is when, for what is missing in a page without samples."""
        moment = max((sample.time for sample in samples), default=now)
        nodes = {sample.node for sample in samples}
        events = list(self._nodes_back(nodes, moment))
        fell: dict[str, list[DeviceState]] = {}
        present: dict[tuple[object, ...], DeviceState] = {}
        parents = _parents(samples)
        for sample in samples:
            key = _key_of(sample)
            one = self._devices.get(key)
            if one is None:
                one = self._devices[key] = _watched(sample)
            present[key] = one
            for finding in self._seen(one, sample, fell):
                if sample.name is None or (sample.node, sample.name) not in parents or finding.counter is None:
                    events.append(self._event(one, sample.time, finding))
        for node, ones in sorted(fell.items()):
            events.append(self._event(ones[0], moment, counters_began_anew(ones_device(ones), len(ones)), node=node))
        events += self._values_gone_and_back(present.values(), moment)
        return events + list(self._missing(present.keys(), nodes, moment))

    def _nodes_back(self, nodes: set[str], moment: datetime) -> Iterator[Event]:
        for node in sorted(nodes & self._silent.keys()):
            if self._silent.pop(node) >= MISSES:
                yield exporter_event(node, moment, "exporter_up", "The exporter answers again.", self._origin)

    def _seen(self, one: DeviceState, sample: Sample, fell: dict[str, list[DeviceState]]) -> Iterator[Finding]:
        """What a device's values tell; `fell` gathers the devices of each node whose counters began anew."""
        if one.misses >= MISSES:
            yield device_returned(sample)
        if sample.uuid is not None and one.uuid is not None and sample.uuid != one.uuid:
            one.last.clear()
            one.absent.clear()
        one.misses, one.uuid, one.pci = 0, sample.uuid or one.uuid, sample.pci or one.pci
        one.note_absent(sample)
        rose: dict[str, tuple[Counter, float]] = {}
        began_anew = False
        for name, value in sample.values.items():
            before = one.last.get(name)
            if value == before:
                continue
            one.last[name] = value
            if before is None:
                continue
            if name == "xid_last":
                yield from xid_changed(value)
            elif known := counter(name, sample.type):
                began_anew = began_anew or value < before
                if (increase := value - before if value > before else value) > 0:
                    rose[name] = (known, increase)
        if began_anew:
            fell.setdefault(sample.node, []).append(one)
        for total in link_counters(rose):
            rose.pop(total, None)
        for name, (known, increase) in rose.items():
            yield rise(name, known, increase)

    def _values_gone_and_back(self, present: Any, moment: datetime) -> Iterator[Event]:
        """One event of a node and value, however many of its devices lack it."""
        gone: dict[tuple[str, str], list[DeviceState]] = {}
        for one in present:
            for name, misses in one.absent.items():
                if misses >= MISSES:
                    gone.setdefault((one.node, name), []).append(one)
        nodes = {one.node: one for one in present}
        for pair in sorted(gone.keys() - self._lost):
            self._lost.add(pair)
            lacking = gone[pair]
            message = f"{pair[1]} is no longer reported of {len(lacking)} device{'s' if len(lacking) > 1 else ''}"
            yield metric_event(lacking[0], moment, ("metric_missing", pair[1], message), len(lacking), self._origin)
        for pair in sorted(pair for pair in self._lost - gone.keys() if pair[0] in nodes):
            self._lost.discard(pair)
            message = f"{pair[1]} is reported again"
            yield metric_event(nodes[pair[0]], moment, ("metric_returned", pair[1], message), 0, self._origin)

    def _missing(self, present: Any, nodes: set[str], moment: datetime) -> Iterator[Event]:
        silent = {one.node for one in self._devices.values()} - nodes if nodes else set()
        for node in sorted(silent):
            self._silent[node] = self._silent.get(node, 0) + 1
            if self._silent[node] == MISSES:
                message = "The page no longer speaks of this node."
                yield exporter_event(node, moment, "exporter_down", message, self._origin)
        for key, one in self._devices.items():
            if key not in present and one.node not in silent:
                one.misses += 1
                if one.misses == MISSES:
                    yield self._event(one, moment, device_missing(one.type, one.name, one.index))

    def _event(self, one: DeviceState, time: datetime, finding: Finding, node: str | None = None) -> Event:
        return finding_event(finding, (node or one.node, one.source, one.name), one.device(), time, self._origin)


def ones_device(ones: Sequence[DeviceState]) -> Device | None:
    """The device where there is only one."""
    return ones[0].device() if len(ones) == 1 else None


def _key(node: str, kind: str, index: int | None, name: str | None, port: int | None) -> tuple[object, ...]:
    return node, kind, index if name is None else name, port


def _key_of(sample: Sample) -> tuple[object, ...]:
    return _key(sample.node, sample.type, sample.gpu, sample.name, sample.port)


def _watched(sample: Sample) -> DeviceState:
    index = sample.gpu if sample.name is None else None
    return DeviceState(
        sample.node, sample.type, index, sample.name, sample.port, sample.source, sample.uuid, sample.pci
    )


def _parents(samples: Sequence[Sample]) -> set[tuple[str, str]]:
    """Devices whose parts (`mc0/csrow2` of `mc0`) are on the page too: a part's counters count the same errors."""
    return {
        (sample.node, "/".join(parts[:length]))
        for sample in samples
        if sample.type == "dimm" and sample.name
        for parts in [sample.name.split("/")]
        for length in range(1, len(parts))
    }


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

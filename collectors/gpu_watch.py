"""Samples to events: counters that rose, GPUs that vanished and came back. Pure; its state is plain JSON.

A counter's first value is where it stands, not an increase. One that fell began anew (the driver was loaded again):
what it shows is the increase since. A GPU that another took the place of (its UUID changed) begins anew, silently.
A GPU is missing when two scrapes in a row lack it: a single gap is most often the exporter's.
Where a page speaks for many nodes and one of them is gone from it whole, that node's exporter is down; of its GPUs
nothing is known meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from store.event import Attribute, Cause, Device, Event, Severity, from_wire, with_id
from store.telemetry import COUNTER_EVENTS, Sample, rise_in_words

MISSES = 2


@dataclass(slots=True)
class Watched:
    """One GPU, as it was last seen."""

    node: str
    gpu: int
    uuid: str | None = None
    pci: str | None = None
    counters: dict[str, float] = field(default_factory=dict)
    misses: int = 0

    def device(self) -> Device:
        """Where it is."""
        return Device(type="gpu", pci=self.pci, index=self.gpu, uuid=self.uuid)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of a GPU."""

    kind: str
    severity: Severity
    message: str
    cause: Cause = "unknown"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


class GpuWatch:
    """Every GPU ever seen through one exporter. `origin` is part of the ids: the exporter's address."""

    def __init__(self, origin: str, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {"gpus": [], "silent": {}}
        self._origin = origin
        self._gpus = {(gpu["node"], gpu["gpu"]): Watched(**gpu) for gpu in saved["gpus"]}
        self._silent: dict[str, int] = dict(saved["silent"])  # nodes gone from the page, and for how many scrapes

    def add(self, samples: Sequence[Sample], now: datetime) -> list[Event]:
        """One scrape; `now` is when, for what is missing in a page without samples."""
        moment = max((sample.time for sample in samples), default=now)
        events: list[Event] = []
        nodes = {sample.node for sample in samples}
        for node in sorted(nodes & self._silent.keys()):
            if self._silent.pop(node) >= MISSES:
                events.append(
                    exporter_event(node, moment, up=True, message="The exporter answers again.", url=self._origin)
                )
        for sample in samples:
            events += self._seen(sample)
        return events + self._missing(samples, nodes, moment)

    def _missing(self, samples: Sequence[Sample], nodes: set[str], moment: datetime) -> list[Event]:
        events: list[Event] = []
        silent = {node for node, _gpu in self._gpus} - nodes if nodes else set()
        for node in sorted(silent):
            self._silent[node] = self._silent.get(node, 0) + 1
            if self._silent[node] == MISSES:
                message = "The page no longer speaks of this node."
                events.append(exporter_event(node, moment, up=False, message=message, url=self._origin))
        present = {(sample.node, sample.gpu) for sample in samples}
        for key, gpu in self._gpus.items():
            if key not in present and gpu.node not in silent:
                gpu.misses += 1
                if gpu.misses == MISSES:
                    events.append(
                        self._event(
                            gpu, moment, Finding("gpu_missing", "warning", f"GPU {gpu.gpu} is no longer reported")
                        )
                    )
        return events

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {"gpus": [asdict(gpu) for gpu in self._gpus.values()], "silent": dict(self._silent)}

    def _seen(self, sample: Sample) -> Iterable[Event]:
        key = (sample.node, sample.gpu)
        gpu = self._gpus.get(key)
        if gpu is None:
            gpu = self._gpus[key] = Watched(sample.node, sample.gpu, sample.uuid, sample.pci)
        if gpu.misses >= MISSES:
            yield self._event(gpu, sample.time, Finding("gpu_returned", "info", f"GPU {gpu.gpu} is reported again"))
        if sample.uuid is not None and gpu.uuid is not None and sample.uuid != gpu.uuid:
            gpu.counters.clear()
        gpu.misses, gpu.uuid, gpu.pci = 0, sample.uuid or gpu.uuid, sample.pci or gpu.pci
        for name, value in sample.values.items():
            if name in COUNTER_EVENTS:
                increase = _increase(gpu.counters.get(name), value)
                gpu.counters[name] = value
                if increase > 0:
                    yield self._rose(gpu, sample.time, name, increase)

    def _rose(self, gpu: Watched, time: datetime, name: str, increase: float) -> Event:
        kind, severity, cause = COUNTER_EVENTS[name]
        # The table is text: from_wire holds its words to the allowed ones.
        words = from_wire({"source": "dcgm", "kind": kind, "severity": severity, "cause": cause})
        count = int(increase) if increase == int(increase) else increase
        attributes: dict[str, Attribute] = {"count": count, "counter": name}
        return self._event(
            gpu, time, Finding(kind, words.severity, rise_in_words(name, increase), words.cause, attributes)
        )

    def _event(self, gpu: Watched, time: datetime, finding: Finding) -> Event:
        event = Event(
            time=time,
            node=gpu.node,
            source="dcgm",
            kind=finding.kind,
            severity=finding.severity,
            cause=finding.cause,
            action="watch" if finding.severity != "info" else "none",
            device=gpu.device(),
            message=finding.message,
            attributes=dict(finding.attributes),
        )
        return with_id(event, self._origin)


def _increase(before: float | None, value: float) -> float:
    if before is None:
        return 0.0
    return value - before if value >= before else value


def exporter_event(node: str, time: datetime, *, up: bool, message: str, url: str) -> Event:
    """An exporter went silent, or answers again."""
    event = Event(
        time=time,
        node=node,
        source="dcgm",
        kind="exporter_up" if up else "exporter_down",
        severity="info" if up else "warning",
        cause="unknown",
        action="none" if up else "watch",
        message=message[:500],
        attributes={"url": url},
    )
    return with_id(event, url)

"""Samples to node-hour roll-ups: pure, and its state is plain JSON, so that a restart loses no part of an hour.

hours = NodeHours()
finished = hours.add(samples)      # roll-ups of hours that a newer sample has ended
hours.partial()                    # the hours still open, as far as they are known

A node's own columns are of its accelerators, whoever made them; `devices` holds what was measured of every device.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from collectors.device_hours import DeviceHours
from store.telemetry import ACCELERATORS, Rollup, Sample, hour_of


@dataclass(slots=True)
class Mean:
    """A sum that knows how many went in."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> None:
        """One value; a missing one is not counted."""
        if value is not None:
            self.total += value
            self.count += 1

    def value(self) -> float | None:
        """The mean; None of nothing."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class OpenHour:
    """One node's hour, being filled. `temps` are the GPUs' mean temperatures, by index."""

    hour_s: float  # its start, Unix seconds
    samples: int = 0
    gpus: list[int] = field(default_factory=list)
    temps: dict[str, Mean] = field(default_factory=dict)
    power: Mean = field(default_factory=Mean)
    util: Mean = field(default_factory=Mean)
    temp_max_c: float | None = None
    memory_temp_max_c: float | None = None
    power_max_w: float | None = None
    sm_clock_min_mhz: float | None = None

    def add(self, sample: Sample) -> None:
        """One GPU at one moment."""
        values = sample.values
        self.samples += 1
        if sample.gpu not in self.gpus:
            self.gpus.append(sample.gpu)
        self.temps.setdefault(str(sample.gpu), Mean()).add(values.get("gpu_temp_c"))
        self.power.add(values.get("power_w"))
        self.util.add(values.get("gpu_util_ratio"))
        self.temp_max_c = _extreme(max, self.temp_max_c, values.get("gpu_temp_c"))
        self.memory_temp_max_c = _extreme(max, self.memory_temp_max_c, values.get("memory_temp_c"))
        self.power_max_w = _extreme(max, self.power_max_w, values.get("power_w"))
        self.sm_clock_min_mhz = _extreme(min, self.sm_clock_min_mhz, values.get("sm_clock_mhz"))

    def rollup(self, node: str) -> Rollup:
        """What is known of the hour so far."""
        means = [mean for mean in (temp.value() for temp in self.temps.values()) if mean is not None]
        whole = Mean(sum(temp.total for temp in self.temps.values()), sum(temp.count for temp in self.temps.values()))
        return Rollup(
            node=node,
            time=datetime.fromtimestamp(self.hour_s, UTC),
            samples=self.samples,
            gpus_seen=len(self.gpus),
            gpu_temp_mean_c=whole.value(),
            gpu_temp_max_c=self.temp_max_c,
            gpu_temp_spread_c=max(means) - min(means) if means else None,
            memory_temp_max_c=self.memory_temp_max_c,
            power_mean_w=self.power.value(),
            power_max_w=self.power_max_w,
            gpu_util_mean=self.util.value(),
            sm_clock_min_mhz=self.sm_clock_min_mhz,
        )


class NodeHours:
    """The open hours of every node that is sampled here."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._open = {node: _hour(hour) for node, hour in saved.items()}
        self._devices = {node: DeviceHours(hour.get("devices")) for node, hour in saved.items()}
        self._changed: set[str] = set()
        self.late = 0  # samples of hours that had been finished: they are left out

    @property
    def left_out(self) -> int:
        """Values beyond what a roll-up holds, since this object was made."""
        return sum(devices.left_out for devices in self._devices.values())

    def add(self, samples: Iterable[Sample]) -> list[Rollup]:
        """Take samples in; returns the roll-ups of hours that ended thereby."""
        finished = []
        for sample in samples:
            start_s = hour_of(sample.time).timestamp()
            hour = self._open.get(sample.node)
            if hour is not None and start_s < hour.hour_s:
                self.late += 1
                continue
            devices = self._devices.setdefault(sample.node, DeviceHours())
            if hour is None or start_s > hour.hour_s:
                if hour is not None:
                    finished.append(self._rollup(sample.node))
                hour = self._open[sample.node] = OpenHour(start_s)
            devices.add(sample.device_name(), sample.values, sample.time)
            devices.ended()  # the node's own hour ends with theirs, and was given above
            if sample.type in ACCELERATORS:
                hour.add(sample)
            self._changed.add(sample.node)
        return finished

    def partial(self) -> list[Rollup]:
        """The open hours that changed since the last call."""
        changed, self._changed = sorted(self._changed), set()
        return [self._rollup(node) for node in changed]

    def _rollup(self, node: str) -> Rollup:
        return replace(self._open[node].rollup(node), devices=self._devices[node].devices() or None)

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {node: {**asdict(hour), "devices": self._devices[node].state()} for node, hour in self._open.items()}


def _hour(saved: Mapping[str, Any]) -> OpenHour:
    own = {name: value for name, value in saved.items() if name != "devices"}
    means = {name: Mean(**saved[name]) for name in ("power", "util")}
    temps = {gpu: Mean(**mean) for gpu, mean in saved["temps"].items()}
    return OpenHour(**{**own, **means, "temps": temps, "gpus": list(saved["gpus"])})


def _extreme(choose: Any, first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    chosen: float = choose(first, second)
    return chosen

"""Samples to node-hour roll-ups: pure, and its state is plain JSON, so that a restart loses no part of an hour.

hours = NodeHours()
finished = hours.add(samples)      # roll-ups of hours that a newer sample has ended
hours.partial()                    # the hours still open, as far as they are known

A node's own columns are of its accelerators, whoever made them; `devices` holds what was measured of every device.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from store.records.telemetry import (
    ACCELERATORS,
    BEYOND,
    MAX_DEVICE_NAME,
    MAX_DEVICES,
    MAX_MEASURES,
    Rollup,
    Sample,
    hour_of,
)

# Values of one node's devices to node-hour roll-ups: pure, and its state is plain JSON.
#
#     hours = DeviceHours(state)
#     hours.add("nic:mlx5_0/1", {"symbol_error": 3.0}, time)
#     hours.rollups("gpu-017")      # hours that ended, and the open one where it changed since the last call
#     hours.state()                 # so that a restart loses no part of an hour
#
# Of each device and measure: min, max, mean, last, and how often a value differed from the one before it, also from the
# last one of the hour before. The roll-ups claim no samples of GPUs: where another source of the node has GPUs, its
# columns stay as they are.

Measures: TypeAlias = dict[str, list[float]]  # of each measure: min, max, sum, count, last, changes
Devices: TypeAlias = dict[str, dict[str, tuple[float, float, float, float, float]]]

_COUNT = 3
# A whole number up to here keeps every digit: counters must not be rounded.
_EXACT = 10.0**15


class DeviceHours:
    """The open hour of one node's devices; hours that ended wait for `rollups`."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._hour_s: float = saved.get("hour_s", 0.0)
        self._devices: dict[str, Measures] = {
            device: {name: list(values) for name, values in measures.items()}
            for device, measures in saved.get("devices", {}).items()
        }
        self._measures = sum(len(measures) for measures in self._devices.values())
        self._ended: list[tuple[float, Devices]] = [(hour_s, devices) for hour_s, devices in saved.get("ended", ())]
        self._changed = False
        self.late = 0  # values of hours that are over
        self.left_out = 0  # values beyond MAX_DEVICES and MAX_MEASURES

    def add(self, device: str, measures: Mapping[str, float], time: datetime) -> None:
        """One device at one moment. `device` is a name within the node: `gpu:3`, `nic:mlx5_0/1`."""
        hour_s = hour_of(time).timestamp()
        if hour_s < self._hour_s:
            self.late += len(measures)
            return
        if hour_s > self._hour_s:
            self._end(hour_s)
        device = device[:MAX_DEVICE_NAME]
        known = self._devices.get(device)
        if known is None:
            if len(self._devices) >= MAX_DEVICES:
                self.left_out += len(measures)
                return
            known = self._devices[device] = {}
        self._changed = True
        for name, value in measures.items():
            if abs(value) < BEYOND:
                self._take(known, name[:MAX_DEVICE_NAME], value)

    def _take(self, known: Measures, name: str, value: float) -> None:
        held = known.get(name)
        if held is None:
            if self._measures >= MAX_MEASURES:
                self.left_out += 1
                return
            self._measures += 1
            known[name] = [value, value, value, 1, value, 0]
            return
        if not held[_COUNT]:
            held[0] = held[1] = value
        elif value < held[0]:
            held[0] = value
        elif value > held[1]:
            held[1] = value
        held[2] += value
        held[_COUNT] += 1
        if value != held[4]:
            held[4] = value
            held[5] += 1

    def _end(self, hour_s: float) -> None:
        """Close the open hour. Of what it measured the last value is kept, to tell whether the next one differs."""
        if devices := _summed(self._devices):
            self._ended.append((self._hour_s, devices))
        kept = {
            device: {name: [0.0, 0.0, 0.0, 0, held[4], 0] for name, held in measures.items() if held[_COUNT]}
            for device, measures in self._devices.items()
        }
        self._devices = {device: measures for device, measures in kept.items() if measures}
        self._measures = sum(len(measures) for measures in self._devices.values())
        self._hour_s, self._changed = hour_s, False

    def ended(self) -> list[tuple[float, Devices]]:
        """The hours that ended since the last call, each by its start in Unix seconds."""
        ended, self._ended = self._ended, []
        return ended

    def devices(self) -> Devices:
        """The open hour as far as it is known."""
        return _summed(self._devices)

    def rollups(self, node: str) -> list[Rollup]:
        """Every hour that ended since the last call, and the open one where it changed since."""
        found = [_rollup(node, *hour) for hour in self.ended()]
        if self._changed and (devices := self.devices()):
            found.append(_rollup(node, self._hour_s, devices))
        self._changed = False
        return found

    def state(self) -> dict[str, Any]:
        """The open hour, and those that ended and have not been taken, as plain JSON."""
        copied = {
            device: {name: held.copy() for name, held in measures.items()} for device, measures in self._devices.items()
        }
        state: dict[str, Any] = {"hour_s": self._hour_s, "devices": copied}
        return {**state, "ended": [list(hour) for hour in self._ended]} if self._ended else state


def _summed(devices: Mapping[str, Measures]) -> Devices:
    found: Devices = {}
    for device, measures in devices.items():
        sums = {
            name: (rounded(low), rounded(high), rounded(total / count), rounded(last), changes)
            for name, (low, high, total, count, last, changes) in measures.items()
            if count
        }
        if sums:
            found[device] = sums
    return found


def rounded(value: float) -> float:
    """Six digits, and a whole number all of its own: it prints short, and a counter is not falsified."""
    if value == int(value) and abs(value) < _EXACT:
        return int(value)
    return float(f"{value:.6g}")


def _rollup(node: str, hour_s: float, devices: Devices) -> Rollup:
    return Rollup(node=node, time=datetime.fromtimestamp(hour_s, UTC), samples=0, gpus_seen=0, devices=devices)


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

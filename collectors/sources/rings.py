"""`rings[:DIR]`: a node's GPUs once a second, through NVIDIA's management library, and its ports' errors every 15 s.

A device that leaves its own usual level is a `measure_shift` within a minute; back at it, a `measure_usual`. The
server compares it with the nodes of its job before anybody is named (docs/diagnosis.md). The windows go into the
node-hours. Seconds in which a GPU has no work tell nothing of its clock. DIR is another root of /sys/class/infiniband.
Counters are read once a window: nothing is lost of a sum, and an adapter asks its firmware for each.
"""

import time
from collections.abc import Iterator, Mapping
from ctypes import Structure, byref, c_uint, c_ulonglong
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.sources.nvml import gpu_count, gpu_device, nvml_library, reasons_name
from collectors.telemetry.ports import read_counters
from collectors.telemetry.rings import SECONDS, Rings, Shift, ShiftEnd
from collectors.telemetry.rollups import DeviceHours
from store.records.event import Attribute, Device, Event, with_id
from store.records.fault_catalog import with_kind_meaning
from store.records.telemetry import RISING, Rollup

_ROOT = "/sys/class/infiniband"
_SOURCE = "rings"
# Bits of nvml.h: no work; slowed down by heat, and by a power brake from outside.
_IDLE, _HEAT, _BRAKE = 0x1, 0x40, 0x80
_SECOND_NS = 1e9
# What is told of a shift, and of why it is over.
_WORDS: Mapping[ShiftEnd | None, str] = {
    None: "is {shift.value:g} for {seconds} s, usual is {shift.usual:g}",
    "back": "is usual again: {shift.value:g}",
    "unmeasured": "is not measured any more: its shift is over",
    "lasting": "is {shift.value:g} for {seconds} s: that is taken for usual from now on",
}


class _GpuSample(Structure):
    """Of one GPU, as the library writes it."""

    _fields_ = (("reasons", c_ulonglong), ("power_mw", c_uint), ("sm_clock_mhz", c_uint))


class _GpuReader:
    """What is asked of each GPU every second, of the library itself: the module's wrapper costs more than the call.

    A thread that wakes once a second finds the processor's caches cold, and each line that it runs costs ten times as
    much as in a loop: a second is kept as the library wrote it, and read when the window ends.
    """

    def __init__(self, nvml: Any, gpus: Mapping[str, Any]) -> None:
        library = nvml.nvmlLib
        reasons = getattr(library, reasons_name(nvml))
        self._names = tuple(gpus)
        self._read = (_GpuSample * len(gpus))()
        self._calls = [
            call
            for gpu, one in zip(gpus.values(), self._read, strict=True)
            for call in (
                partial(library.nvmlDeviceGetPowerUsage, gpu, _place(one, _GpuSample.power_mw)),
                partial(reasons, gpu, _place(one, _GpuSample.reasons)),
                partial(library.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM, _place(one, _GpuSample.sm_clock_mhz)),
            )
        ]
        self._seconds: list[tuple[bytes, list[int]]] = []

    def second(self) -> None:
        """One second of every GPU."""
        codes = [call() for call in self._calls]
        self._seconds.append((bytes(self._read), codes))

    def seconds(self) -> Iterator[tuple[str, dict[str, float] | None, int]]:
        """Since the last call, in order: a GPU, its power and (where it works) clock, and the bits of what slows it.

        None and no bits: the library did not answer all of it, or the GPU is lost.
        """
        seconds, self._seconds = self._seconds, []
        for read, codes in seconds:
            for at, (name, one) in enumerate(zip(self._names, type(self._read).from_buffer_copy(read), strict=True)):
                no_power, no_reasons, no_clock = codes[3 * at : 3 * at + 3]
                works = not one.reasons & _IDLE
                if no_power or no_reasons or (works and no_clock):
                    yield name, None, 0
                    continue
                values = {"power_w": one.power_mw / 1000}
                if works:
                    values["sm_clock_mhz"] = float(one.sm_clock_mhz)
                yield name, values, one.reasons


def _place(second: _GpuSample, field: Any) -> Any:
    """Where the library writes a field of a second."""
    return byref(second, field.offset)


class RingsCollector:
    """The devices of this node, second by second."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the root of the RDMA ports, or empty."""
        self.spec = f"rings:{rest}" if rest else "rings"
        self._root = Path(rest or _ROOT)
        self._settings = settings
        self._interval_s = settings.interval_s or 1.0
        self.wake = Wake()
        self._nvml: Any = None
        self._reader: _GpuReader | None = None
        self._gpus: dict[str, tuple[Any, Device]] = {}
        self._restore({})

    def _restore(self, state: Position) -> None:
        self._rings = Rings(state.get("rings"))
        self._hours = DeviceHours(state.get("hours"))
        self._slowed: dict[str, dict[str, float]] = {
            device: dict(counted) for device, counted in state.get("slowed", {}).items()
        }
        self._working: set[str] = set()  # in the window's last second
        self._second = 0

    def open(self, position: Position | None) -> None:
        """Take up what was told last.

        Raises:
            SourceError: there is neither a GPU's library nor an RDMA port.
        """
        self._restore(position or {})
        try:
            self._nvml = nvml_library()
        except SourceError as error:
            if not self._root.is_dir():
                raise SourceError(f"{error}; and there is no {self._root}: leave the source rings out") from error
        self._find_gpus()
        self._due = time.monotonic()
        self._rollup_due = self._due + self._settings.rollup_interval_s

    def collect(self, wait_s: float) -> CollectorTurn:
        """The seconds until a window ends, or until `wait_s` is over."""
        until = time.monotonic() + wait_s
        while self.wake.wait_until(self._due, until - time.monotonic()):
            self._due = max(self._due + self._interval_s, time.monotonic())
            if self._reader is not None:
                self._reader.second()
            self._second += 1
            if self._second == SECONDS:
                self._second = 0
                return self._window(datetime.now(UTC))
        return CollectorTurn()

    def close(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            nvml, self._nvml, self._gpus, self._reader = self._nvml, None, {}, None
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                return  # the driver is gone: there is nothing to give back

    def _find_gpus(self) -> None:
        """The GPUs that answer; one that is lost is told of by other sources."""
        nvml, self._gpus = self._nvml, {}
        if nvml is None:
            return
        for index in range(gpu_count(nvml)):
            try:
                gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                self._gpus[f"gpu:{index}"] = gpu, gpu_device(nvml, gpu, index)
            except nvml.NVMLError:
                continue
        self._reader = _GpuReader(nvml, {name: gpu for name, (gpu, _device) in self._gpus.items()})

    def _look_at_gpus(self) -> None:
        """The seconds of every GPU since the last look, and which of them had work in the last one."""
        reader, self._working, is_whole = self._reader, set(), True
        if reader is None:
            return
        for name, values, reasons in reader.seconds():
            self._working.discard(name)
            if values is None:
                is_whole = False
                continue
            if not reasons & _IDLE:
                self._working.add(name)
            self._rings.second(name, values)
            slowed = self._slowed.get(name)
            if slowed is None:
                slowed = self._slowed[name] = {"hw_thermal_slowdown_ns": 0.0, "power_brake_slowdown_ns": 0.0}
            if reasons & (_HEAT | _BRAKE):
                slowed["hw_thermal_slowdown_ns"] += _SECOND_NS if reasons & _HEAT else 0.0
                slowed["power_brake_slowdown_ns"] += _SECOND_NS if reasons & _BRAKE else 0.0
        if not is_whole or gpu_count(self._nvml) != len(self._gpus):
            self._find_gpus()

    def _window(self, now: datetime) -> CollectorTurn:
        self._look_at_gpus()
        looked = self._counters()
        for device, values in looked.items():
            self._rings.look(device, values)
        shifts, levels = self._rings.end_window()
        for device in {*levels, *looked}:
            self._hours.add(device, {**levels.get(device, {}), **looked.get(device, {})}, now)
        events = tuple(self._event(shift, now) for shift in shifts)
        due = time.monotonic() >= self._rollup_due
        if not events and not due:  # nothing to keep: a sidecar that dies loses five minutes of levels, and no counter
            return CollectorTurn(lines=len(levels) + len(looked))
        rollups: list[Rollup] = []
        if due:
            self._rollup_due = time.monotonic() + self._settings.rollup_interval_s
            rollups = self._hours.rollups(self._settings.node)
        slowed = {device: dict(counted) for device, counted in self._slowed.items()}
        position = {"rings": self._rings.state(), "hours": self._hours.state(), "slowed": slowed}
        return CollectorTurn(events, tuple(rollups), position, lines=len(levels) + len(looked))

    def _counters(self) -> dict[str, dict[str, float]]:
        """What counts up, and the links of the GPUs that have work: an idle one saves power by a slower link."""
        nvml, found = self._nvml, {device: dict(counted) for device, counted in self._slowed.items()}
        for name, (gpu, _device) in self._gpus.items():
            reads = {"pcie_replay": "nvmlDeviceGetPcieReplayCounter"}
            if name in self._working:
                reads |= {
                    "pcie_link_gen": "nvmlDeviceGetCurrPcieLinkGeneration",
                    "pcie_link_width": "nvmlDeviceGetCurrPcieLinkWidth",
                }
            for measure, read in reads.items():
                try:
                    found.setdefault(name, {})[measure] = float(getattr(nvml, read)(gpu))
                except nvml.NVMLError:
                    continue
        for port, counters in read_counters(self._root, RISING):
            found[f"nic:{port}"] = counters
        return found

    def _event(self, shift: Shift, now: datetime) -> Event:
        seconds = round(SECONDS * self._interval_s * shift.windows)
        attributes: dict[str, Attribute] = {
            "of": shift.device,
            "measure": shift.measure,
            "value": shift.value,
            "usual": shift.usual,
            "seconds": seconds,
            "devices": shift.devices,
        }
        words = f"{shift.measure} of {shift.device} {_WORDS[shift.end].format(shift=shift, seconds=seconds)}"
        if shift.end is not None:
            attributes["end"] = shift.end
        kind = "measure_usual" if shift.end else "measure_shift"
        event = Event(now, self._settings.node, _SOURCE, kind, device=self._device(shift.device), message=words)
        return with_id(with_kind_meaning(replace(event, attributes=attributes)), _SOURCE)

    def _device(self, name: str) -> Device:
        if name in self._gpus:
            return self._gpus[name][1]
        return Device("gpu") if name.startswith("gpu:") else Device("hca")

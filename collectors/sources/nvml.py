"""`nvml`: a node's GPUs without an exporter, through NVIDIA's management library, which comes with the driver.

Samples at the interval of a scrape, in a dcgm-exporter's words. Between them it waits for Xids: each is an `xid_hint`,
for information, since the kernel log is the witness. A GPU that the driver no longer reaches is `gpu_lost`, once.
Needs `pip install 'foreshock[nvml]'` and the driver's libnvidia-ml.so.1.
"""

import ctypes
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.telemetry.samples import Sampled
from store.records.event import Device, Event, canonical_pci, with_id
from store.records.fault_catalog import with_kind_meaning
from store.records.telemetry import Sample

# What NVIDIA's management library reports of a GPU, by the names that a dcgm-exporter's page gives the same values.
#
#     read_gpu(pynvml, handle, place) -> {"gpu_temp_c": 61.0, "ecc_sbe": 4.0, "nvlink_replay_l3": 0.0, ...}
#
# What a GPU does not support is missing. `pynvml` is handed in: it is an extra, and 19 MB of memory.

Read: TypeAlias = Callable[[Any, Any], float]  # of the library and a GPU's handle

# By the numbers of nvml.h: corrected and uncorrected, since the driver was loaded and of the GPU's whole life.
_ECC = {"ecc_sbe": (0, 0), "ecc_dbe": (1, 0), "ecc_sbe_lifetime": (0, 1), "ecc_dbe_lifetime": (1, 1)}
_LINK_ERRORS = {"nvlink_replay": 0, "nvlink_recovery": 1, "nvlink_crc": 2, "nvlink_crc_data": 3}
# From Blackwell on: fields of a link, which is their scope.
_LINK_FIELDS = {
    "nvlink_recovery_event": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    "nvlink_recovery_failed": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "nvlink_effective_error": "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
    "nvlink_integrity_error": "NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "nvlink_rx_error": "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",
    "nvlink_symbol_error": "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS",
}
_MAX_LINKS = 36


def _ecc(kind: int, counter: int) -> Read:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter)


def _violation(policy: str) -> Read:
    """How long a policy held the clocks down, nanoseconds: a field, where the older call takes up to a millisecond."""

    def read(nvml: Any, gpu: Any) -> float:
        try:
            return _field_value(nvml, gpu, getattr(nvml, f"NVML_FI_DEV_PERF_POLICY_{policy}"))
        except nvml.NVMLError:  # an old driver, or a GPU that is lost: this call tells
            return float(
                nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, f"NVML_PERF_POLICY_{policy}")).violationTime
            )

    return read


def _retired(cause: int) -> Read:
    return lambda nvml, gpu: len(nvml.nvmlDeviceGetRetiredPages(gpu, cause))


def _field(name: str) -> Read:
    return lambda nvml, gpu: _field_value(nvml, gpu, getattr(nvml, name))


def _field_value(nvml: Any, gpu: Any, field: int | tuple[int, int]) -> float:
    [value] = nvml.nvmlDeviceGetFieldValues(gpu, [field])
    return _value_of(nvml, value)


def _value_of(nvml: Any, value: Any) -> float:
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(value.nvmlReturn)
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return float(getattr(value.value, names[value.valueType]))


def _throttle_reasons(nvml: Any, gpu: Any) -> float:
    return float(getattr(nvml, reasons_name(nvml))(gpu))


def reasons_name(nvml: Any) -> str:
    """What tells why a GPU runs at its clock (the bits of nvml.h), by the name that the driver has for it."""
    is_new = hasattr(nvml.nvmlLib, "nvmlDeviceGetCurrentClocksEventReasons")  # driver 535 and later
    return "nvmlDeviceGetCurrentClocksEventReasons" if is_new else "nvmlDeviceGetCurrentClocksThrottleReasons"


def _memory_ratio(nvml: Any, gpu: Any) -> float:
    """Without what the driver itself holds back, as nvidia-smi and DCGM count."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
    except nvml.NVMLError_FunctionNotFound:  # a driver before 510
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return float(memory.used / memory.total) if memory.total else 0.0


_VALUES: Mapping[str, Read] = {
    "gpu_temp_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "memory_temp_c": _field("NVML_FI_DEV_MEMORY_TEMP"),
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "gpu_util_ratio": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_used_ratio": _memory_ratio,
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "throttle_reasons": _throttle_reasons,
    "recovery_action": _field("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
    "page_retired_sbe": _retired(0),
    "page_retired_dbe": _retired(1),
    "page_retired_pending": lambda nvml, gpu: nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu),
    "pcie_replay": lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
    "pcie_link_gen": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_link_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "thermal_violation": _violation("THERMAL"),
    "power_violation": _violation("POWER"),
    "reliability_violation": _violation("RELIABILITY"),
    **{name: _ecc(*numbers) for name, numbers in _ECC.items()},
}


def read_gpu(nvml: Any, gpu: Any) -> dict[str, float]:
    """Everything that a GPU reports of itself.

    Raises:
        NVMLError_GpuIsLost: the driver no longer reaches it.
    """
    found: dict[str, float] = {}
    for name, read in _VALUES.items():
        for value in _one(nvml, lambda read=read: read(nvml, gpu)):  # type: ignore[misc]  # bound at once
            found[name] = float(value)
    for rows in _one(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(gpu)):
        names = ("row_remap_correctable", "row_remap_uncorrectable", "row_remap_pending", "row_remap_failure")
        found |= dict(zip(names, map(float, rows), strict=True))
    found |= _links(nvml, gpu)
    return found | _fabric(nvml, gpu)


def _one(nvml: Any, read: Callable[[], Any]) -> Iterator[Any]:
    """The value, or none where the GPU, the driver or this process may not tell."""
    try:
        yield read()
    except nvml.NVMLError_GpuIsLost:
        raise
    except nvml.NVMLError:
        return


def _links(nvml: Any, gpu: Any) -> dict[str, float]:
    """How many NVLinks are active, and each link's errors. A link that does not exist ends the search."""
    found: dict[str, float] = {}
    for link in range(_MAX_LINKS):
        states = list(_one(nvml, lambda link=link: nvml.nvmlDeviceGetNvLinkState(gpu, link)))  # type: ignore[misc]
        if not states:
            break
        found["nvlink_up"] = found.get("nvlink_up", 0.0) + float(states[0])
        for name, counter in _LINK_ERRORS.items():
            read = lambda link=link, counter=counter: nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, counter)  # noqa: E731
            for value in _one(nvml, read):
                found[f"{name}_l{link}"] = float(value)
        found |= _link_fields(nvml, gpu, link)
    return found


def _link_fields(nvml: Any, gpu: Any, link: int) -> dict[str, float]:
    """The counters of one link that newer drivers keep; bindings and drivers that lack some leave them out."""
    names = {name: getattr(nvml, field) for name, field in _LINK_FIELDS.items() if hasattr(nvml, field)}
    found: dict[str, float] = {}
    for values in _one(nvml, lambda: nvml.nvmlDeviceGetFieldValues(gpu, [(field, link) for field in names.values()])):
        for name, value in zip(names, values, strict=True):
            for counted in _one(nvml, lambda value=value: _value_of(nvml, value)):  # type: ignore[misc]
                found[f"{name}_l{link}"] = counted
    return found


def _fabric(nvml: Any, gpu: Any) -> dict[str, float]:
    """The state of the GPU in its NVLink fabric: 3 is done; the mask of its health, where the driver tells it."""

    def read() -> Any:
        info = nvml.c_nvmlGpuFabricInfoV_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(gpu, nvml.byref(info))
        return info

    return {
        name: float(value)
        for info in _one(nvml, read)
        if info.state != nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
        for name, value in (("fabric_state", info.state), ("fabric_health_mask", info.healthMask))
    }


_ORIGIN = "nvml"
# One turn takes at most this many Xids: a GPU that fails may report them without end.
_MAX_XIDS = 100
# The library's own wait, which nothing else ends.
_XIDS_S = 1.0


class NvmlCollector:
    """The GPUs of this node."""

    spec = "nvml"

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is empty.

        Raises:
            SourceError: there is something behind the scheme.
        """
        if rest:
            raise SourceError(f"nvml:{rest}: the source nvml takes no address, it reads this node's GPUs")
        self._settings = settings
        self.wake = Wake()
        self._interval_s = settings.interval_s or settings.scrape_interval_s
        self._sampled = Sampled(_ORIGIN, settings.rollup_interval_s)
        self._lost: set[int] = set()
        self._nvml: Any = None
        self._events: Any = None
        self._places: dict[int, tuple[int, Device]] = {}  # by the address of a handle
        self._due = 0.0

    def open(self, position: Position | None) -> None:
        """Start the library and ask for Xids.

        Raises:
            SourceError: the module or the library is not there, or the driver does not answer.
        """
        state = position or {}
        self._sampled = Sampled(_ORIGIN, self._settings.rollup_interval_s, state)
        self._lost = set(state.get("lost", ()))
        self._nvml = nvml_library()
        self._places = {}
        self._events = self._event_set()
        self._due = time.monotonic()

    def collect(self, wait_s: float) -> CollectorTurn:
        """A sample of every GPU where it is due, else the Xids of the next `wait_s`."""
        due_in_s = self._due - time.monotonic()
        if due_in_s > 0:
            return CollectorTurn(events=tuple(self._xids(min(wait_s, due_in_s))))
        self._due = max(self._due + self._interval_s, time.monotonic())
        now = datetime.now(UTC)
        samples, lost = self._samples(now)
        events, rollups = self._sampled.take(samples, now)
        return CollectorTurn(
            events=(*lost, *events),
            rollups=tuple(rollups),
            lines=len(samples),
            position={**self._sampled.state(), "lost": sorted(self._lost)},
        )

    def close(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            nvml, self._nvml, self._events = self._nvml, None, None
            with suppress(nvml.NVMLError):  # where the driver is gone, there is nothing to give back
                nvml.nvmlShutdown()

    def _samples(self, now: datetime) -> tuple[list[Sample], list[Event]]:
        """What is there, and what was lost since the last time.

        Raises:
            SourceError: the driver no longer answers at all.
        """
        nvml, samples, events = self._nvml, [], []
        for index in range(gpu_count(nvml)):
            try:
                gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                device = self._place(gpu, index)
                values = read_gpu(nvml, gpu)
            except nvml.NVMLError_GpuIsLost:
                if index not in self._lost:
                    self._lost.add(index)
                    events.append(self._gpu_lost(index, now))
                continue
            except nvml.NVMLError:
                continue  # this GPU gives no handle: it is missing
            self._lost.discard(index)
            samples.append(Sample(now, self._settings.node, index, values, device.uuid, device.pci, source="nvml"))
        return samples, events

    def _place(self, gpu: Any, index: int) -> Device:
        """Where a GPU is, asked once for each handle."""
        address = ctypes.cast(gpu, ctypes.c_void_p).value or 0
        if address not in self._places:
            self._places[address] = (index, gpu_device(self._nvml, gpu, index))
        return self._places[address][1]

    def _gpu_lost(self, index: int, now: datetime) -> Event:
        known = next((device for number, device in self._places.values() if number == index), None)
        device = known or Device(type="gpu", index=index)
        message = f"The NVIDIA driver no longer reaches GPU {index}"
        event = Event(now, self._settings.node, "nvml", "gpu_lost", device=device, message=message)
        return with_id(with_kind_meaning(event), _ORIGIN)

    def _event_set(self) -> Any:
        """A set of every GPU's Xids; None where none can be had (no driver of a virtual machine gives them)."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        registered = 0
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpu = nvml.nvmlDeviceGetHandleByIndex(index)
                self._place(gpu, index)
                nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)
                registered += 1
            except nvml.NVMLError:
                continue  # this GPU tells no Xids, or is lost: the others do
        return events if registered else None

    def _xids(self, wait_s: float) -> list[Event]:
        if self._events is None:
            self.wake.wait(wait_s)
            return []
        nvml, wait_ms = self._nvml, max(1, int(min(wait_s, _XIDS_S) * 1000))
        found: list[Event] = []
        for _ in range(_MAX_XIDS):
            try:
                reported = nvml.nvmlEventSetWait_v2(self._events, wait_ms)
            except nvml.NVMLError_Timeout:
                break
            except nvml.NVMLError as error:
                if not found:
                    raise SourceError(f"no Xids can be waited for ({error}): see nvidia-smi") from error
                break
            if reported.eventType & nvml.nvmlEventTypeXidCriticalError:
                found.append(self._xid(reported))
            wait_ms = 1  # the first one was waited for; of the rest those that are there
        return found

    def _xid(self, reported: Any) -> Event:
        address = ctypes.cast(reported.device, ctypes.c_void_p).value or 0
        _index, device = self._places.get(address, (0, Device(type="gpu")))
        code = int(reported.eventData)
        message = f"The driver reported Xid {code}; the kernel log tells more."
        event = Event(datetime.now(UTC), self._settings.node, "nvml", "xid_hint", code, device=device, message=message)
        return with_id(with_kind_meaning(event), _ORIGIN)


def gpu_count(nvml: Any) -> int:
    """How many GPUs there are, with those that are lost.

    Raises:
        SourceError: the driver does not answer at all.
    """
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise SourceError(f"the NVIDIA driver does not answer ({error}): see nvidia-smi") from error


def gpu_device(nvml: Any, gpu: Any, index: int) -> Device:
    """Where a GPU is, and which one."""
    pci = canonical_pci(_text(nvml.nvmlDeviceGetPciInfo(gpu).busId))
    return Device(type="gpu", pci=pci, index=index, uuid=_text(nvml.nvmlDeviceGetUUID(gpu)))


def nvml_library() -> Any:
    """The binding, with the library started.

    Raises:
        SourceError: one of them is not there, or the driver is not.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise SourceError("nvml: the module pynvml is missing: pip install 'foreshock[nvml]'") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise SourceError(f"nvml: {error}: install the NVIDIA driver, or scrape:URL of an exporter") from error
    return nvml


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

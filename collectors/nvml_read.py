"""What NVIDIA's management library tells of a GPU, by the names that a dcgm-exporter's page gives the same values.

    read_gpu(pynvml, handle, place) -> {"gpu_temp_c": 61.0, "ecc_sbe": 4.0, "nvlink_replay_l3": 0.0, ...}

What a GPU does not support is missing. `pynvml` is handed in: it is an extra, and 19 MB of memory.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Read: TypeAlias = Callable[[Any, Any], float]  # of the library and a GPU's handle

# By the numbers of nvml.h: corrected and uncorrected, since the driver was loaded and of the GPU's whole life.
_ECC = {"ecc_sbe": (0, 0), "ecc_dbe": (1, 0), "ecc_sbe_lifetime": (0, 1), "ecc_dbe_lifetime": (1, 1)}
_LINK_ERRORS = {"nvlink_replay": 0, "nvlink_recovery": 1, "nvlink_crc": 2, "nvlink_crc_data": 3}
_MAX_LINKS = 36


def _ecc(kind: int, counter: int) -> Read:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter)


def _violation(policy: str) -> Read:
    return lambda nvml, gpu: nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, policy)).violationTime


def _retired(cause: int) -> Read:
    return lambda nvml, gpu: len(nvml.nvmlDeviceGetRetiredPages(gpu, cause))


def _field(name: str) -> Read:
    return lambda nvml, gpu: _field_value(nvml, gpu, getattr(nvml, name))


def _field_value(nvml: Any, gpu: Any, field: int) -> float:
    [value] = nvml.nvmlDeviceGetFieldValues(gpu, [field])
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(value.nvmlReturn)
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return float(getattr(value.value, names[value.valueType]))


def _throttle_reasons(nvml: Any, gpu: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except nvml.NVMLError_FunctionNotFound:  # drivers before 535
        return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


def _memory_ratio(nvml: Any, gpu: Any) -> float:
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
    "thermal_violation": _violation("NVML_PERF_POLICY_THERMAL"),
    "power_violation": _violation("NVML_PERF_POLICY_POWER"),
    "reliability_violation": _violation("NVML_PERF_POLICY_RELIABILITY"),
    **{name: _ecc(*numbers) for name, numbers in _ECC.items()},
}


def read_gpu(nvml: Any, gpu: Any) -> dict[str, float]:
    """Everything that a GPU tells of itself.

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
        for name, value in (("fabric_state", info.state), ("fabric_health_mask", info.healthMask))
    }

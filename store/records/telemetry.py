"""Telemetry: samples of one GPU, and the roll-ups of a node that the store keeps.

Raw samples never enter SQL. A sample is one GPU at one moment, by canonical names:

    Sample(time=..., node="gpu-017", gpu=3, values={"gpu_temp_c": 61.0, "power_w": 512.0, "ecc_sbe": 4.0})

A roll-up is one node over one hour: the state of its GPUs, with vanished ones counted, never imputed.
Counters (monotonic since driver load) become events when they rise: see `catalogs/counters.csv`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

ROLLUP_S = 3600
# Devices that are counted and averaged in a roll-up's own columns: a GPU is a GPU, whoever made it.
ACCELERATORS = frozenset({"gpu", "npu", "mlu"})
# Of one node and hour: devices, measures of all of them together, and the characters of their names.
MAX_DEVICES = 64
MAX_MEASURES = 2048
MAX_DEVICE_NAME = 64
# No counter of 64 bits shows it: what figures within it differ by is finite.
BEYOND = 2.0**64

# DCGM field -> (canonical name, factor): the columns of an archive's telemetry. What pages hold besides is in
# `catalogs/telemetry.csv`, which agrees with these. Source: DCGM's dcgm_fields and dcgm-exporter's default counters.
GAUGES: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temp_c", 1.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temp_c", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_util_ratio", 0.01),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
}
# `xid_last` is a sticky gauge: what its change tells is said in `collectors/telemetry/device_events.py`.
COUNTERS: Mapping[str, str] = {
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_sbe",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_dbe",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "row_remap_correctable",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "row_remap_uncorrectable",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row_remap_failure",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "nvlink_crc",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "nvlink_replay",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "pcie_replay",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "thermal_violation",
    "DCGM_FI_DEV_XID_ERRORS": "xid_last",
}

# What no sensor goes beyond, by the ends of the names: what does is broken, or a lie.
_RANGES = {
    "_c": (-100.0, 300.0),
    "_w": (-100.0, 100_000.0),
    "_mhz": (0.0, 100_000.0),
    "_util_mean": (0.0, 100.0),
    "_util_ratio": (0.0, 100.0),
}
_ANYTHING = (-inf, inf)


def sensor_range(name: str) -> tuple[float, float]:
    """The least and the most that a sensor of a measure shows."""
    return next((limits for end, limits in _RANGES.items() if name.endswith(end)), _ANYTHING)


def is_measurable(name: str, value: float) -> bool:
    """Whether a sensor can have measured it."""
    low, high = sensor_range(name)
    return low <= value <= high


# What drops when a device is slow, and the counters that rise then, the gravest first.
DROPPING = ("pcie_link_width", "pcie_link_gen", "sm_clock_mhz")
RISING = (
    "hw_thermal_slowdown_ns",
    "power_brake_slowdown_ns",
    "thermal_violation",
    "pcie_replay",
    "roce_retransmission",
    "local_link_integrity",
    "symbol_error",
)


_SHORT = {"hca": "nic"}
# Of these a node has one: it needs no number.
_ALONE = ("node", "bmc")

_GPU = re.compile(r"gpu:(\d{1,4})", re.ASCII)


def gpu_index(device: str) -> int | None:
    """The index of a GPU by its name within its node; None of another device, or of a number that no GPU has.

    >>> gpu_index("gpu:3"), gpu_index("gpu:" + "9" * 30), gpu_index("nic:mlx5_0/1")
    (3, None, None)
    """
    named = _GPU.fullmatch(device)
    return None if named is None else int(named[1])


@dataclass(frozen=True, slots=True)
class Sample:
    """One GPU (or device of another `type`) at one moment; a value that is blank or absent is not in `values`.

    `gpu` is its index; a device without one has a `name` (`mlx5_0`, `mc0/csrow2`), and maybe a `port`.
    `source` is the exporter that told, `serial` the number that its maker asks for.
    """

    time: datetime
    node: str
    gpu: int
    values: Mapping[str, float]
    uuid: str | None = None
    pci: str | None = None
    type: str = "gpu"
    name: str | None = None
    port: int | None = None
    source: str = "dcgm"
    serial: str | None = None

    def device_name(self) -> str:
        """What the device is called within its node: `gpu:3`, `nic:mlx5_0/1`, `dimm:mc0/csrow2`, `node`."""
        if self.name is None:
            return self.type if self.type in _ALONE else f"{self.type}:{self.gpu}"
        return f"{_SHORT.get(self.type, self.type)}:{self.name}" + ("" if self.port is None else f"/{self.port}")


@dataclass(frozen=True, slots=True)
class Rollup:
    """One node over one hour. Temperatures in °C, power in W, ratios 0-1; None = nobody measured it."""

    node: str
    time: datetime  # start of the hour
    samples: int  # GPU samples seen
    gpus_seen: int  # distinct GPUs among them
    gpu_temp_mean_c: float | None = None
    gpu_temp_max_c: float | None = None
    gpu_temp_spread_c: float | None = None  # hottest GPU's mean less the coolest GPU's
    memory_temp_max_c: float | None = None
    power_mean_w: float | None = None
    power_max_w: float | None = None
    gpu_util_mean: float | None = None
    sm_clock_min_mhz: float | None = None
    # Of each device ("gpu:3", "npu:0", "nic:mlx5_0/1") and measure: (min, max, mean, last, changes) within the hour.
    devices: Mapping[str, Mapping[str, Sequence[float | None]]] | None = None


def hour_of(moment: datetime) -> datetime:
    """The start of the roll-up window that holds a moment."""
    return datetime.fromtimestamp(moment.timestamp() // ROLLUP_S * ROLLUP_S, UTC)

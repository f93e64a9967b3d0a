"""Precursor families: which events count together as one sign of trouble, and what an operator calls them.

Each event belongs to one family at most, so that a reason names one thing:

    kind ecc_sbe, any source           -> ecc_sbe
    kind xid, code 63, cause hardware  -> row_remap
    kind xid, code 31, cause application -> app_xid
    kind link_down, severity error     -> link_flap
    kind edac, severity warning        -> host_memory

What only informs is no sign, corrected memory errors excepted: a link that is up again, a fault that is over, the
registers of an error that its own line tells.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrecursorFamily:
    """One family of precursor events.

    Attributes:
        name: the prefix of its features.
        noun: what one of its events is called; the plural adds an s.
        counted: an event carries `attributes.count`, so that sums say more than numbers of events.
        per_device: the most of one device is a feature too (a fault sits in one GPU, a decoy in many).
        rising: more of it never lowers the risk (a monotonic constraint of the model).
    """

    name: str
    noun: str
    counted: bool = False
    per_device: bool = False
    rising: bool = True


FAMILIES: tuple[PrecursorFamily, ...] = (
    PrecursorFamily("ecc_sbe", "corrected ECC error", counted=True, per_device=True),
    PrecursorFamily("memory", "uncorrectable memory error", per_device=True),
    PrecursorFamily("row_remap", "row remapping", per_device=True),
    PrecursorFamily("nvlink", "GPU link error", counted=True, per_device=True),
    PrecursorFamily("pcie", "PCIe error", counted=True, per_device=True),
    PrecursorFamily("thermal", "thermal slowdown"),
    PrecursorFamily("gpu_missing", "GPU disappearance"),
    # The Xid and what accelerators without Xids say in its place.
    PrecursorFamily("hardware_xid", "GPU hardware fault", per_device=True),
    PrecursorFamily("driver_xid", "GPU driver fault"),
    # Decoys for the most part (FIELD A3.3): users' bugs, no sign of bad hardware by themselves.
    PrecursorFamily("app_xid", "application's GPU error", rising=False),
    PrecursorFamily("sxid", "NVSwitch error"),
    PrecursorFamily("link_flap", "link flap"),
    # A link errs before it falls: bit errors, a hot or dark transceiver, an adapter whose firmware complains.
    PrecursorFamily("link_error", "link or adapter error", per_device=True),
    # Corrected errors of host memory foretell uncorrectable ones (FIELD A2).
    PrecursorFamily("host_memory", "host memory error", per_device=True),
    PrecursorFamily("host", "host fault"),
)
# Serious events of every family, those of one node within a minute counted once (the label unit of FIELD A3.3).
INCIDENT = PrecursorFamily("incident", "serious incident")

FAMILY_INDEX: Mapping[str, int] = {family.name: i for i, family in enumerate(FAMILIES)}

# The kinds of each family that are judged by their kind alone; Xids are by their code.
_KINDS: Mapping[str, tuple[str, ...]] = {
    "ecc_sbe": ("ecc_sbe",),
    "memory": ("ecc_dbe", "gpu_ras", "habana_ecc", "habana_hbm"),
    "row_remap": ("row_remap", "row_remap_failure", "gpu_bad_pages"),
    "nvlink": (
        "nvlink_crc",
        "nvlink_replay",
        "nvlink_error",
        "nvlink_train",
        "nvlink_outlier",
        "xgmi_error",
        "link_error",
        "fabricmanager_gpu",
    ),
    "pcie": ("pcie_replay", "pcie_aer", "pcie_degraded", "pcie_dpc", "pcie_slot", "pcie_device_lost", "pcie_recovery"),
    "thermal": ("thermal_violation", "gpu_throttled", "gpu_over_temperature", "cpu_throttled", "thermal_shutdown"),
    "gpu_missing": ("gpu_missing",),
    "hardware_xid": (
        *("gpu_lost", "gpu_unhealthy", "accelerator_error", "gpu_init_failure", "nvrm_init_failure", "gpu_smu_hang"),
        *("habana_heartbeat_lost", "npu_lost", "npu_sdma_error", "accelerator_health"),
    ),
    "driver_xid": ("gpu_ring_timeout", "gpu_queue_hang", "nvrm_distress", "npu_abnormal", "npu_channel_failed"),
    "app_xid": ("gpu_page_fault", "npu_core_error"),
    "sxid": ("sxid", "fabricmanager_nvswitch"),
    "link_flap": (
        *("link_down", "port_removed", "ib_port", "net_link", "bond_slave", "bond_down", "node_down"),
        *("port_error_disabled", "port_flapping"),
    ),
    "link_error": (
        *("counter", "bit_errors", "link_degraded", "link_inactive", "port_unhealthy", "optics_alarm", "smp_timeout"),
        *("mlx5_health", "mlx5_cmd_failed", "mlx5_cmd_timeout", "mlx5_cqe_error", "mlx5_init_failed"),
        *("mlx5_module_temp", "mlx5_module_error", "mlx5_module_unplugged", "mlx5_temp", "mlx5_pcie_power"),
        *("mlx5_tx_timeout", "mlx5_rx_timeout", "net_tx_timeout", "ib_tx_timeout", "efa_failed", "efa_cmd_failed"),
        *("bnxt_cmd_failed", "bnxt_cmd_timeout", "net_init_failed", "net_firmware_reset", "hccl_cqe_error"),
    ),
    "host_memory": ("edac", "mce", "ghes", "memory_failure", "page_offlined"),
}
BY_KIND: Mapping[str, str] = {kind: family for family, kinds in _KINDS.items() for kind in kinds}
# What tells that a link was lost.
LINK_LOSSES = sorted(kind for kind, family in BY_KIND.items() if family == "link_flap")
# Corrected memory errors are no fault and yet the best sign there is.
_CORRECTED: Mapping[str, str] = {"ecc_sbe": "ecc_sbe", "gpu_ras": "ecc_sbe", "habana_ecc": "ecc_sbe"}
# Kinds whose cause tells whose fault they are, as that of an Xid does.
_BY_CAUSE = frozenset({"ascend_fault", "gpu_reset", "gpu_afid", "mlu_xid"})
# What repeats a fault that has its own events: a sticky gauge, a site's alert, the lines that spell an error out.
_ECHOES = frozenset({"xid_hint", "alert", "alert_resolved", "quoted_xid", "sxid_detail"})
BY_XID: Mapping[int, str] = {
    **dict.fromkeys((48, 94, 95, 140, 171, 172), "memory"),
    **dict.fromkeys((63, 64, 160, 161, 177), "row_remap"),
    **dict.fromkeys((74, 136, *range(144, 151), 155), "nvlink"),
    92: "ecc_sbe",
}
XID_BY_CAUSE: Mapping[str, str] = {
    "hardware": "hardware_xid",
    "driver": "driver_xid",
    "application": "app_xid",
    "unknown": "driver_xid",
}
SERIOUS_CAUSES = frozenset({"hardware", "fabric", "host", "driver", "storage"})
SERIOUS_SEVERITIES = frozenset({"error", "fatal"})


def is_serious(severity: str, cause: str) -> bool:
    """Whether an event is a fault of the machine, not of the program that ran on it."""
    return severity in SERIOUS_SEVERITIES and cause in SERIOUS_CAUSES


def family_of(kind: str, code: int | None, severity: str, cause: str) -> str | None:
    """The family of an event, or None for one that is no precursor."""
    if kind == "xid":
        return BY_XID.get(code or 0) or XID_BY_CAUSE.get(cause, "hardware_xid")
    if severity == "info":
        return _CORRECTED.get(kind)
    if kind in _ECHOES:
        return None
    if kind in _BY_CAUSE:
        return XID_BY_CAUSE.get(cause, "host")
    if kind in BY_KIND:
        return BY_KIND[kind]
    return "host" if is_serious(severity, cause) else None

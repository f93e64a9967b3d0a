"""Precursor families: which events count together as one sign of trouble, and what an operator calls them.

Each event belongs to one family at most, so that a reason names one thing:

    kind ecc_sbe, any source           -> ecc_sbe
    kind xid, code 63, cause hardware  -> row_remap
    kind xid, code 31, cause application -> app_xid
    kind link_down, source opensm      -> link_flap
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
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


FAMILIES: tuple[Family, ...] = (
    Family("ecc_sbe", "corrected ECC error", counted=True, per_device=True),
    Family("memory", "uncorrectable memory error", per_device=True),
    Family("row_remap", "row remapping", per_device=True),
    Family("nvlink", "NVLink error", counted=True, per_device=True),
    Family("pcie", "PCIe replay", counted=True, per_device=True),
    Family("thermal", "thermal slowdown"),
    Family("gpu_missing", "GPU disappearance"),
    Family("hardware_xid", "hardware Xid", per_device=True),
    Family("driver_xid", "driver Xid"),
    # Decoys for the most part (FIELD A3.3): users' bugs, no sign of bad hardware by themselves.
    Family("app_xid", "application Xid", rising=False),
    Family("sxid", "NVSwitch error"),
    Family("link_flap", "link flap"),
    Family("host", "host fault"),
)
# Serious events of every family, those of one node within a minute counted once (the label unit of FIELD A3.3).
INCIDENT = Family("incident", "serious incident")

FAMILY_INDEX: Mapping[str, int] = {family.name: i for i, family in enumerate(FAMILIES)}

BY_KIND: Mapping[str, str] = {
    "ecc_sbe": "ecc_sbe",
    "ecc_dbe": "memory",
    "row_remap": "row_remap",
    "row_remap_failure": "row_remap",
    "nvlink_crc": "nvlink",
    "nvlink_replay": "nvlink",
    "pcie_replay": "pcie",
    "thermal_violation": "thermal",
    "gpu_missing": "gpu_missing",
    "gpu_lost": "hardware_xid",
    "sxid": "sxid",
    "link_down": "link_flap",
    "port_removed": "link_flap",
}
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
    if kind in BY_KIND:
        return BY_KIND[kind]
    return "host" if is_serious(severity, cause) else None

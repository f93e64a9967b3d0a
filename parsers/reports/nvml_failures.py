"""NVIDIA's management library (NVML) that a program could not begin, or that lost a GPU, whichever program says so.

    Failed to initialize NVML: Driver/library version mismatch                 -> nvrm_mismatch
    error creating nvml.Device 3: nvml: GPU is lost                            -> gpu_missing, index 3
    NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver -> node_service, driver
    nvidia-container-cli: initialization error: nvml error: driver not loaded  -> node_service, driver

A library that is not there says nothing: a program that can do without GPUs looks for it on nodes that have none. An
image that asks for a newer driver is the image's matter. Sources: nvmlErrorString, its names in pynvml and go-nvml;
nvc_info.c and cli/common.c of libnvidia-container; public logs.
"""

import re
from dataclasses import dataclass

from store.records.event import Device, Event, canonical_pci
from store.records.fault_catalog import with_kind_meaning

# A line without any of these tells no such failure.
SIGNS = ("NVML", "nvml", "NVIDIA-SMI has failed", "nvidia-container-cli: ", "GPU is lost", "library version mismatch")

_MISMATCH = re.compile(
    r"[Dd]river/library version mismatch|NVMLError_LibRmVersionMismatch|ERROR_LIB_RM_VERSION_MISMATCH", re.ASCII
)
_LOST = re.compile(r"\bGPU is lost\b|NVMLError_GpuIsLost|ERROR_GPU_IS_LOST|nvml error: gpu is lost", re.ASCII)
_GPU = re.compile(
    r"\bGPU ?(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
    r"|\b(?:nvml\.Device|gpuId|GPU|entityId|nvmlIndex)[ :=]{0,2}(?P<index>\d{1,4})\b",
    re.ASCII,
)
_NO_DRIVER = re.compile(
    r"[Ff]ailed to initialize NVML: (?:Unknown Error|Driver Not Loaded|GPU access blocked|ERROR_UNKNOWN"
    r"|ERROR_DRIVER_NOT_LOADED|Insufficient (?:Permissions|External Power))"
    r"|NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
    r"|nvidia-container-cli: (?:(?:initialization|detection|device|driver) error: |.{0,40}\bnvml error: )",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """What a line says: a kind with its variant, and which GPU it names, if any."""

    kind: str
    variant: str
    device: Device

    def event(self, source: str, message: str) -> Event:
        """The event of it, without time, node and line."""
        return with_kind_meaning(
            Event(None, None, source, self.kind, device=self.device, message=message.strip()[:500]), self.variant
        )


def nvml_failure(text: str) -> NvmlFailure | None:
    """The failure that a line tells; None where it tells none."""
    if not any(sign in text for sign in SIGNS):
        return None
    if _MISMATCH.search(text):
        return NvmlFailure("nvrm_mismatch", "", Device())
    if _LOST.search(text):
        gpu = _GPU.search(text)
        pci, index = (gpu["pci"], gpu["index"]) if gpu else (None, None)
        device = Device("gpu", pci=canonical_pci(pci) if pci else None, index=int(index) if index else None)
        return NvmlFailure("gpu_missing", "", device)
    return NvmlFailure("node_service", "driver", Device()) if _NO_DRIVER.search(text) else None

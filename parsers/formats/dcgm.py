"""dcgm-exporter's metrics page: one telemetry event per GPU or NVSwitch and scrape.

    DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-455d...",pci_bus_id="00000000:0F:00.0",Hostname="gpu-017"} 61 1741000000000
    -> Sample(time=..., node="gpu-017", gpu=3, values={"gpu_temp_c": 61.0}, uuid="GPU-455d...", pci="0000:0f:00.0")

The exporter writes DCGM's former field names; the present ones are read too, and both spellings of the host label.
DCGM writes a huge number for "blank", "not supported" and the like: such a value is missing, never a measurement.
XID_ERRORS is the last Xid and stays: an event `xid_hint` tells when it changes to another code. A MIG instance's row
repeats what is the whole GPU's (its temperature); what is the instance's own is not taken for the GPU's.
A page that is cut short gives what was whole.
"""

import re
from functools import lru_cache, partial

from parsers.text.device_page import Exporter, PageParser, SeriesDevice
from parsers.text.exposition import Point
from parsers.text.parser import Context, Format
from store.records.event import Device, canonical_pci

# Source: DCGM's dcgm_structs.h (Apache-2.0): blank, not found, not supported, not permissioned; as floats,
# since an exposition's values are floats.
BLANKS = frozenset(float(first + i) for first in (2147483632, 9223372036854775792, 140737488355328) for i in range(4))
UTIL_RATIO = "DCGM_FI_DEV_GPU_UTIL_RATIO"

# GPUs remembered: those of one node, or of a file that holds some nodes' pages.
_REMEMBERED = 1024
_SWITCH = re.compile(r"(?:nvswitch)?(\d{1,9})", re.ASCII)
_GPU = re.compile(r"\d{1,9}", re.ASCII)
_DEVICE = re.compile(r"nvidia(\d{1,9})", re.ASCII)


def _place(point: Point, _context: Context) -> SeriesDevice | None:
    """A GPU, or an NVSwitch; a CPU's rows hold no counter of errors."""
    labels = point.labels
    node = labels.get("Hostname") or labels.get("hostname")
    if "nvswitch" in labels:
        switch = _SWITCH.fullmatch(labels["nvswitch"])
        return SeriesDevice(Device(type="nvswitch", index=int(switch[1])), node) if switch else None
    names = (labels.get("gpu", ""), labels.get("device", ""))
    uuid = labels.get("UUID") or labels.get("uuid") or None
    return _gpu(names, labels.get("pci_bus_id", ""), uuid, node, labels.get("GPU_I_ID", ""))


@lru_cache(maxsize=_REMEMBERED)
def _gpu(names: tuple[str, str], pci: str, uuid: str | None, node: str | None, instance: str) -> SeriesDevice | None:
    """A GPU: all its series say the same of it. `names` are the labels `gpu` and `device`; either may be empty."""
    index = _GPU.fullmatch(names[0]) or _DEVICE.fullmatch(names[1])
    if index is None:
        return None
    device = Device(type="gpu", pci=canonical_pci(pci), index=int(index[index.lastindex or 0]), uuid=uuid)
    return SeriesDevice(device, node, instance=instance)


def _value(point: Point) -> float | None:
    """A sample's value; None where it is blank.

    The name GPU_UTIL_RATIO stood for the field in whole per cent, then (DCGM 4.7) for one of 0.0 to 1.0:
    the exporter prints the first without a decimal point, the second with one.
    """
    if point.value is None or point.value in BLANKS:
        return None
    return point.value * 100 if point.name == UTIL_RATIO and "." in point.text else point.value


EXPORTER = Exporter(source="dcgm", prefixes=("DCGM_FI_", "DCGM_EXP_XID_ERRORS_COUNT"), place=_place, value=_value)


FORMAT = Format(
    name="dcgm",
    description="Metrics page of dcgm-exporter",
    sample='DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-455d8f70-2051-db6c-0430-ffc457bff834",Hostname="gpu-017"} '
    "61 1740801906000",
    make=partial(PageParser, EXPORTER),
    testimony="machine",
    recognises=re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_", re.ASCII),
    shape="page",
    signs=EXPORTER.signs(),
)

"""npu-exporter's metrics page (Huawei Ascend): one telemetry event per NPU and scrape.

    npu_chip_info_temperature{id="3",model_name="910A-Ascend-V1",pcie_bus_info="0000:3E:00.0",vdie_id="185011D4-2150..."} 46 1723621884682
    -> Event(kind="telemetry", time=..., device=Device("npu", pci="0000:3e:00.0", index=3, uuid="185011D4-2150..."),
             attributes={"model": "910A-Ascend-V1", "gpu_temp_c": 46.0})

Each group of metrics has its own collector and bears its own time: what lies within a minute is one scrape.
A query of the chip that failed is written as -1, or as a number of ones only: such a value is missing.
The page does not name its host. Other releases call the labels `npuID`, `modelName`, `uuid` and `pcie`.
"""  # noqa: E501  # one real line

import re
from functools import partial

from parsers.text.device_page import Exporter, PageParser, SeriesDevice
from parsers.text.exposition import Point
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, canonical_pci

# Source: mind-cluster's devmanager constants (Apache-2.0): RetError, UnRetError, FailedValue.
FAILED = frozenset({-1.0, float(2**32 - 1), float(2**64 - 1)})
# An optical module's power in dBm may well be -1.
_MAY_BE_NEGATIVE = "npu_chip_optical_"
_SCRAPE_S = 60.0

_INDEX = re.compile(r"\d{1,9}", re.ASCII)


def _place(point: Point, _context: Context) -> SeriesDevice | None:
    labels = point.labels
    index = labels.get("id") or labels.get("npuID", "")
    if not _INDEX.fullmatch(index):
        return None
    device = Device(
        type="npu",
        pci=canonical_pci(labels.get("pcie_bus_info") or labels.get("pcie", "")),
        index=int(index),
        uuid=labels.get("vdie_id") or labels.get("uuid") or None,
    )
    model = labels.get("model_name") or labels.get("modelName")
    about: dict[str, Attribute] = {"model": model} if model else {}
    return SeriesDevice(device, labels.get("node") or None, instance=labels.get("v_dev_id", ""), about=about)


def _value(point: Point) -> float | None:
    if point.value in FAILED and not (point.value == -1 and point.name.startswith(_MAY_BE_NEGATIVE)):
        return None
    return point.value


EXPORTER = Exporter(source="npu", prefixes=("npu_chip_",), place=_place, value=_value, apart_s=_SCRAPE_S)


FORMAT = Format(
    name="npu",
    description="Metrics page of npu-exporter (Huawei Ascend)",
    sample='npu_chip_info_temperature{id="3",model_name="910A-Ascend-V1",pcie_bus_info="0000:3E:00.0",'
    'vdie_id="185011D4-21502C18-0464ED94-14CC040A-6E102003"} 46 1723621884682',
    make=partial(PageParser, EXPORTER),
    testimony="machine",
    recognises=re.compile(r"^(?:# (?:HELP|TYPE) )?(?:npu_chip_|machine_npu_nums|npu_exporter_)", re.ASCII),
    shape="page",
    signs=EXPORTER.signs(),
)

"""ROCm device-metrics-exporter's metrics page (AMD Instinct): one telemetry event per GPU and scrape.

    gpu_junction_temperature{gpu_id="0",gpu_uuid="72ff740f-0000-1000-804c-3b58bf67050e",hostname="mi300-4",serial_number="692251001124"} 61
    -> Event(kind="telemetry", node="mi300-4", device=Device("gpu", index=0, uuid="72ff740f-..."),
             attributes={"serial": "692251001124", "gpu_temp_c": 61.0})

Newer versions put `amd_` before each name. A field that a GPU does not have is written as a number of ones only, of any
width; 1,048,560 corrected errors are a bogus count of the driver: such values are missing. In a container the exporter
takes the container's id for the host's name: then the context's host is the better one.
"""  # noqa: E501  # one real line

import re
from functools import partial

from parsers.text.device_page import Exporter, PageParser, SeriesDevice
from parsers.text.exposition import Point
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, canonical_pci

# All ones of 32 and 64 bits, and the driver's bogus count of corrected errors (0xFFFF0).
ABSENT = frozenset({float(2**32 - 1), float(2**31 - 1), float(2**64 - 1), 1048560.0})
# All ones of 16 bits: no temperature, power, clock or percentage, but well a count.
ABSENT_GAUGE = 65535.0
_COUNT = re.compile(r"_(?:ecc|count|nack|afid|accumulated)", re.ASCII)
_WHOLE = frozenset({"", "0", "NA", "none"})

_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_CONTAINER = re.compile(r"[0-9a-f]{12}", re.ASCII)


def _place(point: Point, context: Context) -> SeriesDevice | None:
    labels = point.labels
    if not _INDEX.fullmatch(labels.get("gpu_id", "")):
        return None
    node = labels.get("hostname", "")
    if context.node and _CONTAINER.fullmatch(node):
        node = context.node
    about: dict[str, Attribute] = {"serial": labels["serial_number"]} if labels.get("serial_number") else {}
    partition = labels.get("gpu_partition_id", "")
    return SeriesDevice(
        Device(
            type="gpu",
            pci=canonical_pci(labels.get("pcie_bus_id", "")),
            index=int(labels["gpu_id"]),
            uuid=labels.get("gpu_uuid") or None,
        ),
        node or None,
        instance="" if partition in _WHOLE else partition,
        about=about,
    )


def _value(point: Point) -> float | None:
    if point.value in ABSENT or (point.value == ABSENT_GAUGE and not _COUNT.search(point.name)):
        return None
    return point.value


EXPORTER = Exporter(
    source="amd",
    prefixes=("gpu_", "pcie_", "amd_gpu_", "amd_pcie_"),
    place=_place,
    value=_value,
    optional_prefix="amd_",
)


FORMAT = Format(
    name="amd",
    description="Metrics page of ROCm device-metrics-exporter (AMD Instinct)",
    sample='gpu_junction_temperature{gpu_id="0",gpu_uuid="72ff740f-0000-1000-804c-3b58bf67050e",hostname="mi300-4",'
    'serial_number="692251001124"} 61',
    make=partial(PageParser, EXPORTER),
    testimony="machine",
    recognises=re.compile(
        r"^(?:# (?:HELP|TYPE) )?(?:amd_gpu_|amd_pcie_|gpu_(?:nodes_total|(?:junction|edge|memory|hbm)_temperature|"
        r"(?:average_)?package_power|power_usage|gfx_activity|umc_activity|ecc_(?:un)?correct_|ecc_deferred_|"
        r"violation_|xgmi_|afid_errors|health\b)|pcie_(?:nack|replay|recovery)_)",
        re.ASCII,
    ),
    shape="page",
    signs=EXPORTER.signs(),
)

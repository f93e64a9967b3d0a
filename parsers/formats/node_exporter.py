"""node_exporter's metrics page: one telemetry event per port, memory, NVMe disk, CPU or sensor and scrape.

    node_infiniband_link_downed_total{device="mlx5_0",port="1"} 3
    -> Event(kind="telemetry", device=Device("hca", port=1), attributes={"name": "mlx5_0", "link_downed": 3.0})

The page does not name its host, nor bear times. An EDAC controller, its csrows and their DIMMs are devices of their own
(`mc0`, `mc0/csrow2`, `mc0/csrow2/ch1`): their counters count the same errors, so they must not be added up.
A sensor chip that is an NVMe disk's (`nvme_nvme0`) is that disk.
"""

import re
from collections.abc import Mapping
from functools import partial

from parsers.text.device_page import Exporter, PageParser, SeriesDevice
from parsers.text.exposition import Point
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device

_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_DISK_CHIP = "nvme_"


def _place(point: Point, _context: Context) -> SeriesDevice | None:
    labels = point.labels
    if point.name.startswith("node_infiniband_"):
        return _port(labels)
    if point.name.startswith("node_edac_"):
        return _memory(labels)
    if point.name == "node_nvme_info":
        about = {name: labels[name] for name in ("model", "serial", "state") if labels.get(name)}
        return _named("disk", labels.get("device", ""), about)
    if point.name.startswith("node_hwmon_"):
        chip = labels.get("chip", "")
        return _named("disk", chip.removeprefix(_DISK_CHIP)) if chip.startswith(_DISK_CHIP) else _named("sensor", chip)
    if point.name == "node_thermal_zone_temp":
        return _named("sensor", f"{labels.get('type', '')}/{labels.get('zone', '')}")
    package = labels.get("package", "")
    return SeriesDevice(Device(type="cpu", index=int(package))) if _INDEX.fullmatch(package) else None


def _named(kind: str, name: str, about: Mapping[str, Attribute] | None = None) -> SeriesDevice | None:
    return SeriesDevice(Device(type=kind), about={"name": name, **(about or {})}) if name else None


def _port(labels: Mapping[str, str]) -> SeriesDevice | None:
    port = labels.get("port", "")
    if not labels.get("device") or not _INDEX.fullmatch(port):
        return None
    return SeriesDevice(Device(type="hca", port=int(port)), about={"name": labels["device"]})


def _memory(labels: Mapping[str, str]) -> SeriesDevice | None:
    controller, csrow, channel = (labels.get(label) for label in ("controller", "csrow", "channel"))
    if not controller:
        return None
    name = f"mc{controller}" + (f"/csrow{csrow}" if csrow else "") + (f"/ch{channel}" if channel else "")
    about: dict[str, Attribute] = {"name": name}
    if labels.get("dimm_label"):
        about["dimm"] = labels["dimm_label"]
    return SeriesDevice(Device(type="dimm"), about=about)


def _value(point: Point) -> float | None:
    if point.name == "node_nvme_info":  # a constant: what it tells is in its labels
        return float(point.labels.get("state") == "live")
    return point.value


EXPORTER = Exporter(
    source="node_exporter",
    prefixes=(
        "node_infiniband_",
        "node_edac_",
        "node_nvme_info",
        "node_hwmon_",
        "node_thermal_zone_temp",
        "node_cpu_core_throttles_total",
        "node_cpu_package_throttles_total",
    ),
    place=_place,
    value=_value,
)

FORMAT = Format(
    name="node_exporter",
    description="Metrics page of node_exporter: InfiniBand, EDAC, NVMe, sensors, throttling",
    sample='node_infiniband_link_downed_total{device="mlx5_0",port="1"} 3',
    make=partial(PageParser, EXPORTER),
    testimony="machine",
    recognises=re.compile(
        r"^(?:# (?:HELP|TYPE) )?node_(?:infiniband|edac|nvme|hwmon|thermal|cpu|disk|memory|exporter|scrape|boot)_",
        re.ASCII,
    ),
    shape="page",
    signs=EXPORTER.signs(),
)

"""Metrics of any page that a site names: kept as they are, by their own names.

    site_pump_pressure_bar{loop="2",rack="r7"} 3.4
    -> Sample(type="series", name="2,r7", values={"site_pump_pressure_bar": 3.4}, source="page")

A device is what has the same labels. At most MAX_SERIES series of a page are kept.
"""

import re
from collections.abc import Sequence

from parsers.formats import amd, cambricon, dcgm, node_exporter, npu
from parsers.text.device_page import Exporter, SeriesDevice, device_samples
from parsers.text.exposition import Point, metric_name, read_point
from parsers.text.parser import Context, ParseError
from parsers.text.stamp import Stamps
from store.records.event import Device
from store.records.telemetry import Sample

# The exporters whose pages hold samples of a node's accelerators.
EXPORTERS: tuple[Exporter, ...] = (dcgm.EXPORTER, npu.EXPORTER, amd.EXPORTER, cambricon.EXPORTER)


# What tells of a node as a whole: when it was booted, what was killed for lack of memory, whether its BMC is alive.


def _of_node(_point: Point, _context: Context) -> SeriesDevice:
    return SeriesDevice(Device())


def _of_bmc(point: Point, _context: Context) -> SeriesDevice:
    """The BMC, or a sensor that it reads, by its name."""
    name = point.labels.get("name", "") if point.name == "ipmi_temperature_celsius" else ""
    return SeriesDevice(Device(type="sensor"), about={"name": name}) if name else SeriesDevice(Device(type="bmc"))


HOSTS: tuple[Exporter, ...] = (
    Exporter(
        "node_exporter",
        ("node_boot_time", "node_time", "node_vmstat_oom_kill", "node_network_carrier_changes"),
        _of_node,
    ),
    Exporter("ipmi", ("ipmi_",), _of_bmc),
)


def devices_of(text: str, context: Context) -> list[Sample]:
    """The samples of every device of a page: accelerators and their switches, and the host with its BMC.

    A proxy's page may hold those of several exporters.

    Raises:
        ParseError: a sample bears no time, or no host, and the context names none.
    """
    return device_samples((*EXPORTERS, node_exporter.EXPORTER, *HOSTS), text, context)


MAX_SERIES = 1024


def kept_samples(text: str, keep: Sequence[re.Pattern[str]], context: Context) -> list[Sample]:
    """The samples of series whose metric one of the patterns matches as a whole; broken lines are left out.

    Raises:
        ParseError: the context names no node, or a sample bears no time and the context none.
    """
    if not keep:
        return []
    stamps = Stamps(context)
    wanted: dict[str, bool] = {}
    values: dict[str, dict[str, float]] = {}
    series = 0
    for line in text.splitlines():
        name = metric_name(line)
        if name is None:
            continue
        if name not in wanted:
            wanted[name] = any(pattern.fullmatch(name) for pattern in keep)
        if not wanted[name] or series >= MAX_SERIES:
            continue
        try:
            point = read_point(line, stamps)
        except ParseError:
            continue
        if point is not None and point.value is not None:
            series += 1
            device = ",".join(point.labels[label] for label in sorted(point.labels))
            values.setdefault(device, {})[name] = point.value
    if values and (context.node is None or context.until is None):
        raise ParseError("a kept metric bears no host or time: give Context.node and Context.until")
    return [
        Sample(context.until, context.node, 0, measures, type="series", name=device, source="page")  # type: ignore[arg-type]  # neither is None: seen above
        for device, measures in values.items()
    ]

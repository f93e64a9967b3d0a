"""Whose a series is: its labels to a node, a device and a measure, as a scrape of the exporter's own page has them.

    {__name__="DCGM_FI_DEV_GPU_TEMP", gpu="3", Hostname="gpu-017", instance="10.0.0.7:9400"}
    -> SeriesPlace(node="gpu-017", device=Device("gpu", index=3), measure="gpu_temp_c", ...)

The node is what the label says that the site names (`--node-label`), else `node`, `Hostname`, `exported_instance`, and
`instance` without its port. A metric that no table knows keeps its name; its device is a GPU, a port or a sensor where
labels name one, else what all of its own labels say together, else the node.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from parsers.formats import node_exporter
from parsers.pages import EXPORTERS, HOSTS
from parsers.text.device_page import Exporter
from parsers.text.exposition import Point
from parsers.text.parser import Context
from store.records.event import Device
from store.records.telemetry import MAX_DEVICE_NAME
from store.telemetry.measures import Metric, find_metric, node_measure

# Metrics that are taken though no table has them: of GPUs, of the BMC, of a host's load.
_HOST = re.compile(
    r"DCGM_FI_\w+|ipmi_\w+|node_(?:uname_info|load(?:1|5|15)|procs_blocked|memory_MemAvailable_bytes)", re.ASCII
)
# What a node has one of: labels of its series tell its parts, which are one measure.
_WHOLE = frozenset({"node", "bmc"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Labels of the target and of the pod that has the GPU: they say nothing of the device.
_OF_TARGET = frozenset(
    re.findall(
        r"\w+",
        "__name__ job instance exported_instance exported_job node Hostname hostname nodename endpoint namespace pod "
        "container service exported_namespace exported_pod exported_container prometheus prometheus_replica replica "
        "cluster tenant modelName DCGM_FI_DRIVER_VERSION err_code err_msg UUID uuid pci_bus_id collector id",
    )
)
_NODE_LABELS = ("node", "Hostname", "hostname", "exported_instance")
_PORT = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^:]+)(?::\d{1,5})?", re.ASCII)
_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_ANY = (*EXPORTERS, node_exporter.EXPORTER, *HOSTS)


@dataclass(frozen=True, slots=True)
class SeriesPlace:
    """Where a series belongs. `name` is the device's, where it has no index; `target` whoever was scraped."""

    node: str
    target: str
    source: str
    device: Device
    name: str | None
    measure: str
    metric: Metric
    exporter: Exporter | None = None
    instance: str = ""  # the MIG instance or partition of the device that the value is of
    known: bool = True  # the catalogue has a name for it


def is_known(name: str) -> bool:
    """Whether a metric is taken without being named: a table has it, or it tells of the host."""
    found = _metric(name)
    named = found is not None and bool(found[1].template)
    return named or node_measure(name).known or _HOST.fullmatch(name) is not None


def place_of(labels: Mapping[str, str], node_label: str | None = None) -> SeriesPlace | str:
    """Where a series belongs, or a sentence why it has no place."""
    name = labels.get("__name__", "")
    node = _node(labels, node_label)
    if node is None:
        missing = node_label or "node, Hostname or instance"
        return f"{name}: no label {missing} names its host: name another label with --node-label"
    target = " ".join(filter(None, (labels.get("job"), labels.get("instance"))))
    known = _metric(name)
    if known is not None and known[1].template:
        exporter, metric = known
        place = exporter.place(Point(name, labels, "", None, None), Context(node=node))
        measure = metric.named(labels)
        if place is not None and measure is not None:
            about = place.about.get("name") if place.device.index is None else None
            named = None if about is None else _printable(str(about))
            return SeriesPlace(
                node, target, exporter.source, place.device, named, measure, metric, exporter, place.instance
            )
    return _unknown(labels, node, target)


def _unknown(labels: Mapping[str, str], node: str, target: str) -> SeriesPlace:
    """A series of which no page's labels say whose it is: by what a table's column of that name would be of."""
    name = labels["__name__"]
    one = node_measure(name)
    metric = find_metric(one.source, name) if one.known else None
    metric = metric or Metric("", one.factor, "", of_instance=False)
    gpu, port = labels.get("gpu", ""), labels.get("port", "")
    own = [labels[label] for label in sorted(labels) if label not in _OF_TARGET and labels[label]]
    device, named, instance = Device(type=one.type), one.device, ""
    if _INDEX.fullmatch(gpu) and not one.known:
        device = Device(type="gpu", index=int(gpu), uuid=labels.get("UUID") or None)
        instance = labels.get("GPU_I_ID", "")
        return SeriesPlace(node, target, "dcgm", device, None, name[:MAX_DEVICE_NAME], metric, None, instance, False)
    if own and not (one.known and one.type in _WHOLE):
        if labels.get("device") and _INDEX.fullmatch(port):
            device, named = Device(type="hca", port=int(port)), labels["device"]
        elif one.type == "bmc":
            device, named = Device(type="sensor"), labels.get("name") or ",".join(own)
        else:
            device, named = Device(type="series"), ",".join(own)
        named = _printable(named)
    return SeriesPlace(node, target, one.source, device, named, one.name, metric, None, instance, one.known)


def _printable(name: str) -> str:
    """A device's name of a label's text, which may be any."""
    return _CONTROL.sub("?", name)[:MAX_DEVICE_NAME]


@lru_cache(maxsize=8192)
def _metric(name: str) -> tuple[Exporter, Metric] | None:
    for exporter in _ANY:
        if name.startswith(exporter.prefixes):
            metric = find_metric(exporter.source, name.removeprefix(exporter.optional_prefix))
            if metric is not None:
                return exporter, metric
    return None


def _node(labels: Mapping[str, str], node_label: str | None) -> str | None:
    if node_label is not None:
        return _host(labels.get(node_label, ""))
    for label in _NODE_LABELS:
        if labels.get(label):
            return _host(labels[label]) if label == "exported_instance" else labels[label]
    return _host(labels.get("instance", ""))


def _host(address: str) -> str | None:
    match = _PORT.fullmatch(address)
    return match["host"].strip("[]") if match else None

"""Points of OpenTelemetry's metrics as the points of an exporter's page: same tables, same devices, same words.

    DCGM_FI_DEV_ECC_SBE_VOL_TOTAL {gpu="3", Hostname="gpu-017"} 4      what a collector's Prometheus receiver scraped
    hw.errors {hw.type="gpu", hw.id="gpu3", error.type="corrected"} 4   OpenTelemetry's hardware conventions
    -> Sample(node="gpu-017", gpu=3, values={"ecc_sbe": 4.0}, ...)

The conventions (semantic-conventions, docs/hardware, status Development) tell by attributes what others tell by a
metric's name, so the table has them as `hw.TYPE.errors.ERROR` and the like. They leave open what `hw.id` holds: a GPU
is known where it ends in its index, alone or after a word, as may `hw.name`, `index` or `gpu.index`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from parsers.formats import node_exporter
from parsers.pages import EXPORTERS, HOSTS
from parsers.text.device_page import Exporter, SeriesDevice, samples_of_points
from parsers.text.exposition import Point
from parsers.text.parser import Context, ParseError
from store.records.event import Attribute, Device, canonical_pci
from store.records.telemetry import Sample, is_measurable
from store.telemetry.measures import find_metric

# Of one point: a scraped series has some ten labels.
MAX_ATTRIBUTES = 64
MAX_TEXT = 255
_REMEMBERED = 8192
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Metrics of every kind of hardware: what they are of stands in `hw.type`.
_COMMON = ("hw.errors", "hw.power", "hw.temperature")
_INDEX = re.compile(r"(?:[A-Za-z]{1,16}[-_: /]{0,2})?(\d{1,4})", re.ASCII)
_UUID = re.compile(r"GPU-[0-9A-Fa-f-]{8,40}", re.ASCII)
_INDEXED = ("hw.id", "hw.name", "gpu.index", "index")
_OF_MEMORY = re.compile(r"memory|hbm|vram", re.IGNORECASE)
_BEYOND = 2.0**63


def _hardware(point: Point, _context: Context) -> SeriesDevice | None:
    """Where a point of the conventions belongs; None where its attributes do not tell."""
    labels = point.labels
    kind = point.name.split(".")[1]
    if kind == "gpu":
        return _gpu(labels)
    if kind == "host":
        return SeriesDevice(Device(type="bmc"))
    name = labels.get("hw.name") or labels.get("hw.id")
    if not name:
        return None
    about: dict[str, Attribute] = {"name": name}
    return SeriesDevice(Device(type="dimm" if kind == "memory" else "sensor"), about=about)


def _gpu(labels: Mapping[str, str]) -> SeriesDevice | None:
    found = next(filter(None, (_INDEX.fullmatch(labels.get(key, "")) for key in _INDEXED)), None)
    if found is None:
        return None
    told = labels.get("hw.id", "")
    uuid = told if _UUID.fullmatch(told) else None
    return SeriesDevice(Device(type="gpu", pci=canonical_pci(told), index=int(found[1]), uuid=uuid))


HARDWARE = Exporter("hw", ("hw.",), _hardware)
_ALL = (*EXPORTERS, node_exporter.EXPORTER, *HOSTS, HARDWARE)


@lru_cache(maxsize=_REMEMBERED)
def exporter_of(metric: str) -> Exporter | None:
    """Whose metric it is; None for one that no table knows, or that is left out on purpose."""
    if metric in _COMMON:
        return HARDWARE
    for exporter in _ALL:
        if metric.startswith(exporter.prefixes):
            bare = metric.removeprefix(exporter.optional_prefix)
            known = find_metric(exporter.source, bare) or find_metric(f"{exporter.source}_exporter", bare)
            if known is not None and known.template:
                return exporter
    return None


def point_of(metric: str, labels: Mapping[str, str], value: float | None, time: datetime) -> Point | None:
    """The point of a page that a data point is; None for one that the table does not know by its attributes.

    Raises:
        ParseError: it names no device.
    """
    name = _qualified(metric, labels)
    exporter = exporter_of(name)
    if exporter is None or (name == "hw.gpu.utilization" and labels.get("hw.gpu.task", "general") != "general"):
        return None
    known = None if value is None or not abs(value) < _BEYOND else float(value)
    # As its exporter would print it: of one field DCGM's ratio is told from its former per cent by the decimal point.
    text = "" if known is None else f"{known:.0f}" if known > 1 and known.is_integer() else f"{known}"
    point = Point(name, labels, text, known, time)
    if exporter is HARDWARE and _hardware(point, Context()) is None:
        what = "GPU: end hw.id or hw.name in its index, as in gpu3" if name.startswith("hw.gpu.") else "component"
        raise ParseError(f"{metric} names no {what}")
    return point


def _qualified(metric: str, labels: Mapping[str, str]) -> str:
    """A metric's name in the table."""
    if metric not in _COMMON:
        return metric
    kind, what = labels.get("hw.type", ""), metric.removeprefix("hw.")
    if what == "errors":
        return f"hw.{kind}.errors.{labels.get('error.type', '')}"
    if what == "power":
        return f"hw.{'host' if kind in ('host', 'enclosure') else kind}.power"
    if kind != "gpu":
        return "hw.sensor.temperature"
    return (
        "hw.gpu.memory.temperature" if _OF_MEMORY.search(labels.get("hw.sensor_location", "")) else "hw.gpu.temperature"
    )


def node_of(point: Point) -> str | None:
    """The host that a point's own labels name."""
    exporter = exporter_of(point.name)
    place = None if exporter is None else exporter.place(point, Context())
    return None if place is None else place.node


def samples_of(
    points: Iterable[Point], node: str, now: datetime, look: Callable[[], None] = lambda: None
) -> tuple[list[Sample], list[str]]:
    """The samples of points of one node, and a sentence for each value that no sensor measures.

    `look` is called before each point and sample: what it raises ends the work.
    """
    ours: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda one: one.time or now):
        exporter = exporter_of(point.name)
        if exporter is not None:
            ours.setdefault(exporter.source, []).append(point)
    found: list[Sample] = []
    wrong: list[str] = []
    context = Context(node=node, until=now)
    for exporter in _ALL:
        for sample in samples_of_points(exporter, _looked_at(ours.pop(exporter.source, ()), look), context):
            look()
            values = {name: value for name, value in sample.values.items() if is_measurable(name, value)}
            lost = sample.values.keys() - values.keys()
            wrong += [
                f"{name} of {sample.device_name()} is {sample.values[name]:g}: no sensor measures that" for name in lost
            ]
            if values:
                found.append(replace(sample, node=node, values=values))
    return found, wrong


def _looked_at(points: Iterable[Point], look: Callable[[], None]) -> Iterator[Point]:
    for point in points:
        look()
        yield point


def clean_labels(pairs: Sequence[tuple[str, object]]) -> dict[str, str]:
    """Attributes as a page's labels: texts, numbers and truths; what holds other values is no label."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if isinstance(value, str | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[key[:MAX_TEXT]] = _CONTROL.sub("?", text[:MAX_TEXT])
    return found

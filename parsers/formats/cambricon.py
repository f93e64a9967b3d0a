"""mlu-exporter's metrics page (Cambricon): one telemetry event per MLU and scrape.

    mlu_chip_temperature{driver="v5.10.22",mlu="3",model="MLU370-X8",node="mlu-7",sn="102112300123",uuid="6ad01c1e-..."} 61
    -> Event(kind="telemetry", node="mlu-7", device=Device("mlu", index=3, uuid="6ad01c1e-..."),
             attributes={"model": "MLU370-X8", "serial": "102112300123", "gpu_temp_c": 61.0})

Link counters keep their link in the name. -1 is "not there". MLU370 has no cluster temperature and writes 0 for it.
"""  # noqa: E501  # one real line

import re
from functools import partial

from parsers.text.device_page import Exporter, PageParser, SeriesDevice
from parsers.text.exposition import Point
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device

# Where 0 is no measurement.
_NEVER_ZERO = frozenset({"mlu_cluster_temperature", "mlu_chip_temperature", "mlu_memory_temperature"})
_DESCRIBED_BY = {"model": "model", "sn": "serial"}

_INDEX = re.compile(r"\d{1,9}", re.ASCII)


def _place(point: Point, _context: Context) -> SeriesDevice | None:
    labels = point.labels
    if not _INDEX.fullmatch(labels.get("mlu", "")):
        return None
    about: dict[str, Attribute] = {name: labels[label] for label, name in _DESCRIBED_BY.items() if labels.get(label)}
    device = Device(type="mlu", index=int(labels["mlu"]), uuid=labels.get("uuid") or None)
    return SeriesDevice(device, labels.get("node") or None, instance=labels.get("vf", ""), about=about)


def _value(point: Point) -> float | None:
    return None if point.value == -1 or (point.value == 0 and point.name in _NEVER_ZERO) else point.value


EXPORTER = Exporter(source="cambricon", prefixes=("mlu_",), place=_place, value=_value)


FORMAT = Format(
    name="cambricon",
    description="Metrics page of mlu-exporter (Cambricon)",
    sample='mlu_chip_temperature{driver="v5.10.22",mlu="3",model="MLU370-X8",node="mlu-7",sn="102112300123",'
    'uuid="6ad01c1e-0000-0000-0000-000000000003"} 61',
    make=partial(PageParser, EXPORTER),
    testimony="machine",
    recognises=re.compile(r"^(?:# (?:HELP|TYPE) )?mlu_[a-z]", re.ASCII),
    shape="page",
    signs=EXPORTER.signs(),
)

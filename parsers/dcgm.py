"""dcgm-exporter's metrics page: one telemetry event per GPU and scrape.

    DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-455d...",pci_bus_id="00000000:0F:00.0",Hostname="gpu-017"} 61 1741000000000
    -> Sample(time=..., node="gpu-017", gpu=3, values={"gpu_temp_c": 61.0}, uuid="GPU-455d...", pci="0000:0f:00.0")

The exporter writes DCGM's former field names; the present ones are read too, and both spellings of the host label.
DCGM writes a huge number for "blank", "not supported" and the like: such a value is missing, never a measurement.
A page that is cut short gives what was whole.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite

from parsers.parser import Context, Format, ParseError
from parsers.pci import canonical
from parsers.stamp import Stamps
from store.event import Attribute, Device, Event
from store.telemetry import COUNTERS, GAUGES, Sample

# Present name -> the name that store/telemetry.py knows. Source: DCGM's dcgm_fields.h (Apache-2.0), former_names.
RENAMED: Mapping[str, str] = {
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_BOARD_POWER_WATTS": "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_UTIL_RATIO": "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_XID_ERROR": "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILED": "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
}
# Source: DCGM's dcgm_structs.h (Apache-2.0): blank, not found, not supported, not permissioned; as floats,
# since an exposition's values are floats.
BLANKS = frozenset(float(first + i) for first in (2147483632, 9223372036854775792, 140737488355328) for i in range(4))
PREFIX = "DCGM_FI_"
UTIL_RATIO = "DCGM_FI_DEV_GPU_UTIL_RATIO"
# More GPUs than one page can hold: a broken page must not eat the memory.
MAX_GPUS = 1_000_000

_SAMPLE = re.compile(
    r"(?P<name>DCGM_FI_[A-Z0-9_]{1,100})\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\}\s+(?P<value>[^\s]{1,40})(?:\s+(?P<time>\d{1,16}))?\s*$",
    re.ASCII,
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(slots=True)
class _Gpu:
    """A GPU whose sample is being gathered."""

    time: datetime | None
    node: str | None
    index: int
    line: int
    uuid: str | None = None
    pci: str | None = None
    values: dict[str, float] = field(default_factory=dict)


class DcgmParser:
    """Gathers the lines of a page by GPU. A GPU whose metric comes a second time begins its next sample."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._open: dict[tuple[str | None, str], _Gpu] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The sample that this line ends, if it ends one.

        Raises:
            ParseError: a DCGM metric that is cut short or broken.
        """
        if not text.startswith(PREFIX):
            return []
        return [_event(done) for done in self._add(text, line)]

    def flush(self) -> Iterable[Event]:
        """The samples still being gathered: a page is over when its input is."""
        return [_event(done) for done in self._drain()]

    def _drain(self) -> list[_Gpu]:
        gathered, self._open = self._open, {}
        return [gpu for gpu in gathered.values() if gpu.values]

    def _add(self, text: str, line: int) -> Iterator[_Gpu]:
        match = _SAMPLE.match(text)
        if not match:
            raise ParseError(f"{text[:60]!r} is no whole sample: NAME{{LABELS}} VALUE [TIME]")
        labels = {name: _unescape(value) for name, value in _LABEL.findall(match["labels"])}
        index = labels.get("gpu", "")
        if not index.isdigit() or len(index) > 9:
            return  # a switch's, a link's or a CPU's metric
        value = _percent(match["name"], match["value"])
        time = self._stamps.since_epoch(int(match["time"]) / 1000) if match["time"] else self._context.until
        node = labels.get("Hostname") or labels.get("hostname") or self._context.node
        key = (node, labels.get("UUID") or labels.get("uuid") or index)
        canonical_name, number = _named(RENAMED.get(match["name"], match["name"]), value)
        gpu = self._open.get(key)
        if gpu is not None and gpu.time == time and labels.get("GPU_I_ID") and canonical_name in gpu.values:
            return  # another MIG instance of the same GPU
        if gpu is not None and (gpu.time != time or canonical_name in gpu.values):
            if gpu.values:
                yield gpu
            gpu = None
        if gpu is None:
            if len(self._open) >= MAX_GPUS:
                raise ParseError(f"more than {MAX_GPUS} GPUs on one page")
            gpu = self._open[key] = _Gpu(time, node, int(index), line)
        gpu.uuid = labels.get("UUID") or labels.get("uuid") or gpu.uuid
        gpu.pci = canonical(labels.get("pci_bus_id", "")) or gpu.pci
        if canonical_name and number is not None:
            gpu.values[canonical_name] = number


def samples(text: str, context: Context) -> list[Sample]:
    """The samples of a whole page; broken lines are left out. Lines without a time take `context.until`.

    Raises:
        ParseError: a sample bears no time, or no host, and the context names none.
    """
    parser = DcgmParser(context)
    done: list[_Gpu] = []
    for line, raw in enumerate(text.splitlines(), start=1):
        if raw.startswith(PREFIX):
            try:
                done.extend(parser._add(raw, line))
            except ParseError:
                continue  # a page cut short gives what was whole
    return [_sample(gpu) for gpu in (*done, *parser._drain())]


def _sample(gpu: _Gpu) -> Sample:
    if gpu.time is None or gpu.node is None:
        missing = "time: give Context.until" if gpu.time is None else "host: give Context.node"
        raise ParseError(f"the sample of GPU {gpu.index} bears no {missing}")
    return Sample(time=gpu.time, node=gpu.node, gpu=gpu.index, values=gpu.values, uuid=gpu.uuid, pci=gpu.pci)


def _event(gpu: _Gpu) -> Event:
    attributes: dict[str, Attribute] = dict(gpu.values)
    return Event(
        time=gpu.time,
        node=gpu.node,
        source="dcgm",
        kind="telemetry",
        device=Device(type="gpu", pci=gpu.pci, index=gpu.index, uuid=gpu.uuid),
        attributes=attributes,
        line=gpu.line,
    )


def _named(field_name: str, value: float | None) -> tuple[str | None, float | None]:
    """The canonical name and value of a field; a field that nobody uses has no name."""
    if gauge := GAUGES.get(field_name):
        name, factor = gauge
        return name, None if value is None else value * factor
    return COUNTERS.get(field_name), value


def _percent(field_name: str, text: str) -> float | None:
    """A sample's value, in per cent where it is the utilization.

    The name GPU_UTIL_RATIO stood for the field in whole per cent, then (DCGM 4.7) for one of 0.0 to 1.0:
    the exporter prints the first without a decimal point, the second with one.
    """
    value = _value(text)
    return value * 100 if value is not None and field_name == UTIL_RATIO and "." in text else value


def _value(text: str) -> float | None:
    """A sample's value; None where it is blank, NaN or infinite."""
    try:
        value = float(text)
    except ValueError as error:
        raise ParseError(f"{text!r} is no number") from error
    return None if not isfinite(value) or value in BLANKS else value


def _unescape(text: str) -> str:
    return re.sub(r'\\[\\"n]', lambda match: _ESCAPED[match[0]], text) if "\\" in text else text


FORMAT = Format(
    name="dcgm",
    description="Metrics page of dcgm-exporter",
    sample='DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-455d8f70-2051-db6c-0430-ffc457bff834",Hostname="gpu-017"} '
    "61 1740801906000",
    make=DcgmParser,
    recognises=re.compile(r"^(?:# (?:HELP|TYPE) )?DCGM_FI_", re.ASCII),
    shape="page",
)

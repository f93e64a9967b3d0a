"""What AMD's `amd-smi list`, `static`, `metric` and `monitor` show of each GPU, as text, `--json` or `--csv`.

    GPU: 0
        POWER:
            SOCKET_POWER: 158 W
        TEMPERATURE:
            HOTSPOT: 45 °C
        ECC:
            TOTAL_UNCORRECTABLE_COUNT: 2
    -> {"kind": "accelerator_reading", "device": {"type": "gpu", "index": 0}, "attributes": {"power_w": 158, ...}, ...}
       {"kind": "accelerator_ecc", "severity": "warning", "attributes": {"ecc_dbe": 2}, ...}

    GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  SINGLE_ECC  DOUBLE_ECC
      0    0  251 W   55 °C   43 °C   144 MHz    0 %    0 %           0           2

The table is that of `amd-smi monitor`, its columns as they were called before 7.0 or are since; of a partition (XCP)
but the first nothing is taken. The counts are since the driver was loaded; of blocks (UMC, SDMA ...) those above
zero. JSON is a list of GPUs, since 7.0 under `gpu_data`; a value is a number, or an object of value and unit. "N/A"
is missing. A line that begins with a date and time dates what follows. The bus and the UUID of `list` and `static`
are those of the reading that they stand in: `amd-smi metric` names none. Forms: the change log of AMD's amdsmi (6.1
to 7.0) and its guide "Using AMD SMI". No form is known of a GPU that is gone: it is not listed.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from parsers.reports.tool_reading import ToolReading, moment_of_line, number_of
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import MAX_TEXT
from parsers.text.parser import Context, Format
from store.records.event import Device, Event, canonical_pci

_NAME = "amd_smi"
_GPU = re.compile(r"GPU: (?P<gpu>\d{1,3})\s*", re.ASCII)
_FIELD = re.compile(r"(?P<indent> {4,12})(?P<name>[A-Z][A-Z0-9_]{1,40}):(?: (?P<value>\S.{0,200}?))?\s*")
# Names of a section and a value in it; without a section those of the first depth.
_VALUES = {
    ("power", "socket_power"): "power_w",
    ("temperature", "edge"): "edge_temp_c",
    ("temperature", "hotspot"): "gpu_temp_c",
    ("temperature", "mem"): "memory_temp_c",
    ("ecc", "total_correctable_count"): "ecc_sbe",
    ("ecc", "total_uncorrectable_count"): "ecc_dbe",
    ("ecc", "total_deferred_count"): "ecc_deferred",
    ("pcie", "replay_count"): "pcie_replay",
    # What `amd-smi monitor` shows, whose values have no section.
    ("", "power_usage"): "power_w",
    ("", "max_power"): "power_cap_w",
    ("", "hotspot_temperature"): "gpu_temp_c",
    ("", "memory_temperature"): "memory_temp_c",
    ("", "single_bit_ecc"): "ecc_sbe",
    ("", "double_bit_ecc"): "ecc_dbe",
    ("", "pcie_replay"): "pcie_replay",
}
_OF_BLOCKS = {"correctable_count": "ecc_sbe", "uncorrectable_count": "ecc_dbe", "deferred_count": "ecc_deferred"}
_BLOCKS = "ecc_blocks"
_TEXTS = {("asic", "market_name"): "model", ("asic", "asic_serial"): "serial"}
# The columns of `--csv`, of the Linux tool and of hosts of virtual machines.
_COLUMNS = {
    "socket_power": "power_w",
    "edge": "edge_temp_c",
    "edge_temperature": "edge_temp_c",
    "hotspot": "gpu_temp_c",
    "hotspot_temperature": "gpu_temp_c",
    "mem": "memory_temp_c",
    "vram_temperature": "memory_temp_c",
    "total_correctable_count": "ecc_sbe",
    "total_uncorrectable_count": "ecc_dbe",
    "total_deferred_count": "ecc_deferred",
    **{name: known for (section, name), known in _VALUES.items() if not section},
}
# The columns of `amd-smi monitor`, before 7.0 and since.
_MONITORED = {
    "POWER": "power_w",
    "PWR_CAP": "power_cap_w",
    "GPU_TEMP": "gpu_temp_c",
    "GPU_T": "gpu_temp_c",
    "MEM_TEMP": "memory_temp_c",
    "MEM_T": "memory_temp_c",
    "SINGLE_ECC": "ecc_sbe",
    "DOUBLE_ECC": "ecc_dbe",
    "PCIE_REPLAY": "pcie_replay",
}
_TABLE = re.compile(r"\s{0,12}(?:TIMESTAMP\s{1,12})?GPU\s{1,12}[A-Z].{0,400}")
# A cell of that table: a number and its unit, two numbers and theirs, or a word.
_NUMBERS = r"(?:\d{1,12}(?:\.\d{1,6})?(?:/ {0,12}\d{1,12}(?:\.\d{1,6})?)?|N/A)"
_CELL = re.compile(rf"{_NUMBERS}(?: (?:W|°C|%|MHz|GHz|KB|MB|GB|TB|Mb/s))?(?=\s|$)|\S+")
_MOST_CELLS = 64
_MOST_COLUMNS = 1000
_BLOCK = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}", re.ASCII)
_UUID = re.compile(r"[0-9A-Fa-f-]{8,40}", re.ASCII)
_WITHOUT = frozenset({"N/A", "NA", "", "<redacted>"})


@dataclass(slots=True)
class _Path:
    """The headings that stand above a line of text."""

    section: str = ""
    block: str = ""
    columns: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)  # of the table of `amd-smi monitor`


class AmdSmiParser:
    """Decodes sweeps of one node. Holds the GPU that the present lines speak of."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._time: datetime | None = None
        self._said: ToolReading | None = None
        self._path = _Path()
        self._documents = DocumentParser(self._of_document, ("gpu_data",))

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of the GPU before, where another one begins; of a row; of a JSON document that is whole.

        Raises:
            ParseError: a document is broken.
        """
        if match := _GPU.fullmatch(text[:80]):
            found = list(self._told())
            self._said = ToolReading(Device("gpu", index=int(match["gpu"])), line)
            self._path = _Path()
            return found
        if self._said is not None and (match := _FIELD.fullmatch(text[:300])):
            self._field(self._said, len(match["indent"]) // 4, match["name"].lower(), match["value"])
            return []
        if text.startswith(("gpu,", "timestamp,gpu,")):
            found = list(self._told())
            self._path.columns = text.strip().lower().split(",", _MOST_COLUMNS)
            return found
        if self._path.columns and text[:1].isdigit() and text[:12].partition(",")[0].isdigit():
            return list(self._of_row(text, line))
        if _TABLE.fullmatch(text[:480]):
            found = list(self._told())
            heads = text.split()[:_MOST_CELLS]
            self._path = _Path(heads=heads if _MONITORED.keys() & set(heads) else [])
            return found
        if self._path.heads and text.lstrip()[:1].isdecimal():
            return list(self._of_table(text, line))
        if (moment := moment_of_line(text, self._context)) is not None:
            found = list(self._told())
            self._time = moment
            return found
        return list(self._documents.feed(text, line))

    def flush(self) -> Iterable[Event]:
        """The events of the GPU that was read last.

        Raises:
            ParseError: a document was cut short.
        """
        yield from self._told()
        yield from self._documents.flush()

    def _field(self, said: ToolReading, depth: int, name: str, value: str | None) -> None:
        path = self._path
        if depth == 1:
            path.section, path.block = ("" if value else name), ""
        elif depth == 2 and value is None:
            path.block = name
        if value is not None and depth == 3 and path.section == _BLOCKS:
            _take_block(said, path.block, name, value)
        elif value is not None and depth <= 2:
            _take(said, "" if depth == 1 else path.section, name, value)

    def _told(self) -> Iterator[Event]:
        said, self._said = self._said, None
        if said is not None:
            yield from said.events(_NAME, self._context.node, self._time)

    def _of_row(self, text: str, line: int) -> Iterator[Event]:
        cells = _cells(text)
        row = dict(zip(self._path.columns, cells, strict=False))
        if not row.get("gpu", "").isdigit() or len(row["gpu"]) > 3 or row.get("xcp", "0") not in ("0", "N/A"):
            return
        said = ToolReading(Device("gpu", index=int(row["gpu"])), line)
        for name, value in row.items():
            if name in _COLUMNS:
                said.take(_COLUMNS[name], value)
        said.device = _named(said.device, row.get("bdf"), row.get("uuid"))
        if said.device.pci:
            said.values.setdefault("bus", said.device.pci)
        yield from said.events(_NAME, self._context.node, _since_epoch(row.get("timestamp")) or self._time)

    def _of_table(self, text: str, line: int) -> Iterator[Event]:
        cells = _CELL.findall(text[:480])
        if len(cells) != len(self._path.heads):
            return
        row = dict(zip(self._path.heads, cells, strict=True))
        if not row["GPU"].isdecimal() or len(row["GPU"]) > 3 or row.get("XCP", "0") not in ("0", "N/A"):
            return
        said = ToolReading(Device("gpu", index=int(row["GPU"])), line)
        for head, cell in row.items():
            if known := _MONITORED.get(head):
                said.take(known, cell)
        yield from said.events(_NAME, self._context.node, _since_epoch(row.get("TIMESTAMP")) or self._time)

    def _of_document(self, document: Document) -> Iterator[Event]:
        gpu = document.value.get("gpu")
        if isinstance(gpu, bool) or not isinstance(gpu, int) or not 0 <= gpu < 1000:
            return
        if document.value.get("xcp") not in (None, 0, "0", "N/A"):
            return
        said = ToolReading(Device("gpu", index=gpu), document.line)
        for name, value in document.value.items():
            if not isinstance(value, dict) or ("", name) in _VALUES:
                _take(said, "", name.lower(), value)
            elif name == _BLOCKS:
                for block, counts in value.items():
                    for count, number in counts.items() if isinstance(counts, dict) else ():
                        _take_block(said, block.lower(), count, number)
            else:
                for inner, one in value.items():
                    _take(said, name, inner, one)
        yield from said.events(_NAME, self._context.node, self._time)


def _since_epoch(text: str | None) -> datetime | None:
    """The time of a row that was watched: whole seconds since 1970."""
    return datetime.fromtimestamp(int(text), UTC) if text and text.isdecimal() and len(text) == 10 else None


def _cells(text: str) -> Sequence[str]:
    try:
        return next(csv.reader([text]), [])[:_MOST_COLUMNS]
    except csv.Error:
        return []


def _take(said: ToolReading, section: str, name: str, value: object) -> None:
    """One value of a section, or of the GPU itself."""
    if name in ("bdf", "uuid") and section in ("", "bus") and isinstance(value, str):
        said.device = _named(said.device, value if name == "bdf" else None, value if name == "uuid" else None)
        if said.device.pci:
            said.values.setdefault("bus", said.device.pci)
    elif (known := _TEXTS.get((section, name))) and isinstance(value, str) and value.strip() not in _WITHOUT:
        said.values[known] = value.strip()[:MAX_TEXT]
    elif known := _VALUES.get((section, name)):
        said.take(known, value)


def _take_block(said: ToolReading, block: str, name: str, value: object) -> None:
    known = _OF_BLOCKS.get(name)
    if known is not None and number_of(value) and _BLOCK.fullmatch(block):
        said.take(f"{known}_{block}", value)


def _named(device: Device, bdf: str | None, uuid: str | None) -> Device:
    pci = canonical_pci(bdf) if bdf else None
    known = uuid if uuid and _UUID.fullmatch(uuid) else None
    return replace(device, pci=pci or device.pci, uuid=known or device.uuid)


FORMAT = Format(
    name=_NAME,
    description="What AMD's `amd-smi list`, `static`, `metric`, `monitor` (text, `--json`, `--csv`) show of each GPU",
    sample='{"gpu_data": [{"gpu": 0, "temperature": {"hotspot": {"value": 45, "unit": "C"}}, '
    '"ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 0}}]}',
    make=AmdSmiParser,
    testimony="machine",
    recognises=re.compile(
        r"^\s*(?:TIMESTAMP\s+)?GPU\s{2,}(?:XCP\s+)?(?:POWER|GPU_T|GPU_TEMP|SINGLE_ECC)\b|^GPU: \d{1,3}\s*$"
        r"|^ {8}(?:TOTAL_(?:UN)?CORRECTABLE_COUNT|SOCKET_POWER|HOTSPOT): |^ {4}BDF: [0-9a-f]{4}:"
        r"|\"total_(?:un)?correctable_count\": ?(?:\d|\"N/A\")|\"double_bit_ecc\": ?\d|\"socket_power\": ?"
        r"|\"gpu_data\": ?\[|^(?:timestamp,)?gpu,[\w.,]*?\b(?:socket_power|hotspot|hotspot_temperature"
        r"|total_correctable_count|power_usage|double_bit_ecc)\b",
        re.ASCII,
    ),
)

"""What AMD's `rocm-smi` shows: the table "Concise Info", and lines of one value of one GPU (`-a`, `--showtemp` ...).

    Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
                  (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
    0       2     0x74a1,   28851  43.0°C      142.0W    NPS1, SPX, 0        133Mhz  900Mhz  0%   auto  750.0W  0%     0%
    -> {"kind": "accelerator_reading", "device": {"type": "gpu", "index": 0},
        "attributes": {"gpu_temp_c": 43, "power_w": 142, "power_cap_w": 750}, ...}
    GPU[0]          : Temperature (Sensor junction) (C): 41.0
    GPU[0]:         RAS INFO
             Block       Status    Correctable Error  Uncorrectable Error
               UMC        ENABLED                  5                    2

The counts of `--showrasinfo` are since the driver was loaded, the correctable errors first: one version's head names them
the other way round, and prints them the same. Those of a block that does not count, and a bogus count of the driver, are
missing. Also as `--json`: one object of cards. The junction is the hottest place of a GPU; where a table shows its edge, that is
the edge's temperature. What a GPU does not tell ("N/A") is missing; no form is known of a GPU that is gone. A line that
begins with a date and time dates what follows. Forms: the change log of AMD's rocm_smi_lib (6.1.1), its showRasInfo()
and ROCm's release notes (5.0, --showtemp); older tables write `35.0c`.
"""  # noqa: E501  # one real line

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from parsers.reports.tool_reading import MOST_OPEN, ToolReading, moment_of_line
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import MAX_TEXT
from parsers.text.parser import Context, Format
from store.records.event import Device, Event, canonical_pci

_NAME = "rocm_smi"
_LINE = re.compile(
    r"GPU\[(?P<gpu>\d{1,3})\]\s{1,20}: (?P<name>[A-Za-z][\w ()%.]{2,60}?): +(?P<value>\S.{0,80}?)\s*", re.ASCII
)
_ROW = re.compile(
    r"(?P<gpu>\d{1,3})\s{2,}(?:\S.{0,60}?\s)?(?P<temp>-?\d{1,3}\.\d)(?:°C|c)\s+(?:(?P<power>\d{1,5}\.\d{1,3})W|N/A)\s(?P<rest>.{0,200})",
    re.ASCII,
)
_HEAD = re.compile(r"(?:Device|GPU)\s{2,20}.{0,80}?\bTemp\b")
_CAP = re.compile(r"(?P<cap>\d{1,5}\.\d)W", re.ASCII)
_CARD = re.compile(r"card(?P<gpu>\d{1,3})", re.ASCII)
_VALUES = {
    "Temperature (Sensor edge) (C)": "edge_temp_c",
    "Temperature (Sensor junction) (C)": "gpu_temp_c",
    "Temperature (Sensor memory) (C)": "memory_temp_c",
    "Average Graphics Package Power (W)": "power_w",
    "Current Socket Graphics Package Power (W)": "power_w",
    "Max Graphics Package Power (W)": "power_cap_w",
}
_RAS = re.compile(r"GPU\[(?P<gpu>\d{1,3})\]:\s{1,20}RAS INFO\s*", re.ASCII)
_BLOCK = re.compile(
    r"\s{1,40}(?P<block>[A-Z][A-Z0-9_]{1,30})\s+(?:ENABLED|SING|MULT|POSITION)\s+(?P<sbe>\d{1,15})\s+(?P<dbe>\d{1,15})\s*",
    re.ASCII,
)
# What the driver counts of each channel of memory that has no counter.
_BOGUS = 0xFFFF0
_PCI, _SERIAL = "PCI Bus", "Serial Number"


class RocmSmiParser:
    """Decodes sweeps of one node. Holds the GPUs of the sweep that is being read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._time: datetime | None = None
        self._open: dict[int, ToolReading] = {}
        self._sensor = "edge_temp_c"
        self._blocks: ToolReading | None = None  # whose table of blocks is being read
        self._documents = DocumentParser(self._of_document)

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of the sweep before, where another one begins; those of a JSON document that is whole.

        Raises:
            ParseError: a document is broken.
        """
        if match := _LINE.fullmatch(text[:200]):
            return list(self._value(int(match["gpu"]), match["name"], match["value"], line))
        if match := _RAS.fullmatch(text[:80]):
            return list(self._table(int(match["gpu"]), line))
        if self._blocks is not None and (match := _BLOCK.fullmatch(text[:200])):
            _count(self._blocks, match["block"].lower(), int(match["sbe"]), int(match["dbe"]))
            return []
        if row := _ROW.match(text[:400]):
            return list(self._row(row, line))
        if _HEAD.match(text[:200]):
            self._sensor = "edge_temp_c"
        elif text[:1].isspace() and "(Junction)" in text[:120]:
            self._sensor = "gpu_temp_c"
        elif "ROCm System Management Interface" in text[:200]:
            return list(self._told())
        elif (moment := moment_of_line(text, self._context)) is not None:
            found = list(self._told())
            self._time = moment
            return found
        return list(self._documents.feed(text, line))

    def flush(self) -> Iterable[Event]:
        """The events of the GPUs that were read last.

        Raises:
            ParseError: a document was cut short.
        """
        yield from self._told()
        yield from self._documents.flush()

    def _value(self, gpu: int, name: str, value: str, line: int) -> Iterator[Event]:
        known = _VALUES.get(name)
        said = self._open.get(gpu)
        if said is not None and known in said.values:  # the next sweep
            yield from self._told()
        if known is None and name not in (_PCI, _SERIAL):
            return
        _take(self._reading(gpu, line), name, value)

    def _table(self, gpu: int, line: int) -> Iterator[Event]:
        """The sweep before, where this GPU's blocks were told in it, and room for them."""
        said = self._open.get(gpu)
        if said is not None and any(name.startswith("ecc_") for name in said.values):
            yield from self._told()
        self._blocks = self._reading(gpu, line)

    def _row(self, row: re.Match[str], line: int) -> Iterator[Event]:
        gpu = int(row["gpu"])
        if gpu in self._open and self._sensor in self._open[gpu].values:
            yield from self._told()
        said = self._reading(gpu, line)
        said.take(self._sensor, row["temp"])
        said.take("power_w", row["power"])
        if cap := _CAP.search(row["rest"]):
            said.take("power_cap_w", cap["cap"])

    def _reading(self, gpu: int, line: int) -> ToolReading:
        return self._open.setdefault(gpu, ToolReading(Device("gpu", index=gpu), line))

    def _told(self) -> Iterator[Event]:
        said = list(self._open.values())
        self._open.clear()
        self._blocks = None
        for one in said:
            yield from one.events(_NAME, self._context.node, self._time)

    def _of_document(self, document: Document) -> Iterator[Event]:
        for card, fields in list(document.value.items())[:MOST_OPEN]:
            match = _CARD.fullmatch(card[:16])
            if match is None or not isinstance(fields, dict):
                continue
            said = ToolReading(Device("gpu", index=int(match["gpu"])), document.line)
            _take_all(said, fields)
            yield from said.events(_NAME, self._context.node, self._time)


def _count(said: ToolReading, block: str, corrected: int, uncorrected: int) -> None:
    """The errors of one block, beside the GPU's own, which are the sum."""
    for name, count in (("ecc_sbe", corrected), ("ecc_dbe", uncorrected)):
        if count and count % _BOGUS == 0:
            continue
        before = said.values.get(name, 0)
        said.take(name, count + (before if isinstance(before, int) else 0))
        if count:
            said.take(f"{name}_{block}", count)


def _take_all(said: ToolReading, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, str | int | float):
            _take(said, name, str(value)[:MAX_TEXT])


def _take(said: ToolReading, name: str, value: str) -> None:
    if name == _PCI:
        said.device = replace(said.device, pci=canonical_pci(value))
    elif name == _SERIAL and value not in ("N/A", ""):
        said.values["serial"] = value
    elif known := _VALUES.get(name):
        said.take(known, value)


FORMAT = Format(
    name=_NAME,
    description="What AMD's `rocm-smi` shows of each GPU: its table, `--showtemp`, `--showrasinfo`, `-a`, `--json`",
    sample="GPU[0]          : Temperature (Sensor junction) (C): 41.0",
    make=RocmSmiParser,
    testimony="machine",
    recognises=re.compile(
        r"^=+ ROCm System Management Interface =+|^GPU\[\d{1,3}\]:\s+RAS INFO\s*$"
        r"|^GPU\[\d{1,3}\]\s+: (?:Temperature \(Sensor |PCI Bus: "
        r"|[\w ]+ Package Power \(W\): )|^\{?\s*\"card\d{1,3}\": ?\{(?:\"|\s*$)"
        r"|\"Temperature \(Sensor \w{1,12}\) \(C\)\": ",
        re.ASCII,
    ),
)

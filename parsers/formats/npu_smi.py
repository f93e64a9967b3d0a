"""What `npu-smi info` of Huawei's Ascend driver shows: the table of all NPUs, and the pages of one (`-t ecc` ...).

    | NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
    | Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
    | 0     910B3               | Alarm         | 98.1        43                0    / 0             |
    | 0                         | 0000:C1:00.0  | 0           0    / 0          3400 / 65536         |
    -> {"kind": "accelerator_reading", "device": {"type": "npu", "pci": "0000:c1:00.0", "index": 0},
        "attributes": {"health": "Alarm", "power_w": 98.1, "gpu_temp_c": 43, ...}, ...}
       {"kind": "accelerator_health", "severity": "error", ...}

Two rows are one chip. Where a chip's row bears a second number (Device, Phy-ID), that is its index; else the NPU's own.
A page of health (`-t health`) names no NPU: where the line above it is the command that made it, that does.

    npu-smi info -t health -i 5 -c 0
            Health Status                  : Alarm
            Error Code                     : 80E01801
            Error Information              : node type=SOC, sensor type=Temperature

Pages of one NPU (`-t common`, `-t ecc`, `-t board`) are lines of name and value that begin with `NPU ID`; the values of
another chip of the card, its MCU, are none of the NPU. A line that begins with a date and time dates what follows.
Forms: Huawei's npu-smi Command Reference (`npu-smi info`, `-t common`, `-t ecc`, `-t board`), mind-cluster's guide of
what to collect (`-t health`) and the dcmi tool's own source; Ascend's guides show the tables of the 310, 310P, 910 and
910B. A health other than `OK` is `Warning`, `Alarm`, `Critical` or `UNKNOWN` there. No form is known of an NPU that is
gone: it has no row.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from parsers.reports.tool_reading import MOST_OPEN, ToolReading, moment_of_line
from parsers.text.parser import Context, Format
from store.records.event import Device, Event, canonical_pci
from store.records.fault_catalog import ascend_handling

_NAME = "npu_smi"
_NODE = re.compile(r"(?P<node>[A-Za-z0-9][\w.-]{0,252}): (?=[ \t]*[|+]|[ \t]{2,}[A-Z])", re.ASCII)
_CARD = re.compile(r"(?P<npu>\d{1,4})\s+(?P<model>[\w.-]{1,40})", re.ASCII)
_CHIP = re.compile(r"(?P<chip>\d{1,3})(?:\s+(?P<device>\d{1,4}))?", re.ASCII)
_HEALTH = re.compile(r"OK|Warning|Alarm|Critical|UNKNOWN", re.ASCII)
_USED = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})", re.ASCII)
_FIELD = re.compile(r"\s*(?P<name>[A-Za-z][\w() %/-]{1,44}?)\s*: (?P<value>[\w:.%()=,; /-]{1,140}?)\s*", re.ASCII)
# The command that asks for a page of health, as a shell shows it; its options come in any order.
_ASKED = re.compile(r"\bnpu-smi info (?=[^|]{0,40}-t health\b)[^|]{0,40}?-i (?P<npu>\d{1,4})\b", re.ASCII)
_CODES = re.compile(r"\b(?:0x)?([0-9A-Fa-f]{8})\b", re.ASCII)
_VALUES = {
    "Temperature(C)": "gpu_temp_c",
    "Temperature (C)": "gpu_temp_c",
    "NPU Temperature (C)": "gpu_temp_c",
    "HBM Temperature(C)": "memory_temp_c",
    "HBM Temperature (C)": "memory_temp_c",
    "NPU Real-time Power(W)": "power_w",
    "HBM Single Bit Error Count": "ecc_sbe",
    "HBM Double Bit Error Count": "ecc_dbe",
    "HBM Single Bit Aggregate Total Err Cnt": "ecc_sbe_lifetime",
    "HBM Double Bit Aggregate Total Err Cnt": "ecc_dbe_lifetime",
    "HBM Single Bit Isolated Pages Count": "page_retired_sbe",
    "HBM Double Bit Isolated Pages Count": "page_retired_dbe",
    "DDR Single Bit Error Count": "ecc_sbe_ddr",
    "DDR Double Bit Error Count": "ecc_dbe_ddr",
}
# What a page may begin its next chip with.
_MCU = "mcu"


class NpuSmiParser:
    """Decodes tables and pages of one node or several. Holds the chip that each node's present lines speak of."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._time: datetime | None = None
        self._open: dict[str | None, ToolReading] = {}
        self._mcu: set[str | None] = set()
        self._asked: int | None = None  # of which NPU the next page of health is

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of the chip before, where a line ends it."""
        node = self._context.node
        if prefix := _NODE.match(text):
            node, text = prefix["node"], text[prefix.end() :]
        if text.lstrip()[:1] == "|":
            return list(self._row(node, text, line))
        if match := _ASKED.search(text[:200]):
            self._asked = int(match["npu"])
            return []
        if match := _FIELD.fullmatch(text[:200]):
            return list(self._field(node, match["name"], match["value"], line))
        if (moment := moment_of_line(text, self._context)) is not None:
            found = list(self.flush())
            self._time = moment
            return found
        return []

    def flush(self) -> Iterable[Event]:
        """The events of the chips that were read last."""
        found = [event for node in list(self._open) for event in self._told(node)]
        self._mcu.clear()
        return found

    def _row(self, node: str | None, text: str, line: int) -> Iterator[Event]:
        cells = [cell.strip() for cell in text.strip().strip("|").split("|", 4)]
        if len(cells) != 3:
            return
        card, chip = _CARD.fullmatch(cells[0]), _CHIP.fullmatch(cells[0])
        if card is not None and _HEALTH.fullmatch(cells[1]):
            yield from self._begin(node, int(card["npu"]), line)
            reading = self._open[node]
            reading.health = cells[1]
            reading.values["model"] = card["model"]
            numbers = cells[2].split()
            for name, word in zip(("power_w", "gpu_temp_c"), numbers, strict=False):
                reading.take(name, word)
            return
        said = self._open.get(node)
        if chip is None or said is None or not (cells[1] == "NA" or canonical_pci(cells[1])):
            return
        index = int(chip["device"]) if chip["device"] else said.device.index
        said.device = replace(said.device, pci=canonical_pci(cells[1]), index=index)
        said.values["chip"] = int(chip["chip"])
        used = _USED.findall(cells[2][:200])
        if used and int(used[-1][1]):  # of the two the last is that of the memory beside the chip
            said.take("memory_used_mb", used[-1][0])
            said.take("memory_mb", used[-1][1])
        yield from self._told(node)

    def _field(self, node: str | None, name: str, value: str, line: int) -> Iterator[Event]:
        if name == "NPU ID" and value.isdecimal() and len(value) < 5:
            yield from self._begin(node, int(value), line)
            return
        if name in ("Health Status", "Health") and _HEALTH.fullmatch(value):
            yield from self._begin(node, self._asked, line)
            self._open[node].health, self._asked = value, None
            return
        said = self._open.get(node)
        if said is not None and said.health is not None:
            _take_fault(said, name, value)
        elif said is not None:
            yield from self._value(node, said, name, value, line)

    def _value(self, node: str | None, said: ToolReading, name: str, value: str, line: int) -> Iterator[Event]:
        if name == "Chip Name":
            if value.lower() == _MCU:
                self._mcu.add(node)
        elif node in self._mcu and name != "Chip ID":
            return
        elif name == "PCIe Bus Info":
            said.device = replace(said.device, pci=canonical_pci(value))
        elif name == "Chip ID" and value.isdecimal() and len(value) < 4:
            self._mcu.discard(node)
            if "chip" in said.values:  # the page's next chip
                yield from self._begin(node, said.device.index or 0, line)
            self._open[node].values["chip"] = int(value)
        elif known := _VALUES.get(name):
            if known in said.values:
                yield from self._begin(node, said.device.index or 0, line)
            self._open[node].take(known, value)

    def _begin(self, node: str | None, npu: int | None, line: int) -> Iterator[Event]:
        """The chip before, and room for another one; of too many nodes at once that of the first is told."""
        yield from self._told(node)
        if len(self._open) >= MOST_OPEN:
            yield from self._told(next(iter(self._open)))
        self._open[node] = ToolReading(Device("npu", index=npu), line)

    def _told(self, node: str | None) -> Iterator[Event]:
        said = self._open.pop(node, None)
        self._mcu.discard(node)
        if said is not None and said.values.keys() - {"chip", "model"} | ({"health"} if said.health else set()):
            yield from said.events(_NAME, node, self._time)


def _take_fault(said: ToolReading, name: str, value: str) -> None:
    """Why an NPU is not well, by its page of health; "NA" is nothing."""
    if name == "Error Code" and (codes := _CODES.findall(value)):
        said.fault["fault_code"] = " ".join(code.upper() for code in codes)
        said.fault["handling"] = ascend_handling(codes[0].upper())
    elif name == "Error Information" and value != "NA":
        said.fault["information"] = value


FORMAT = Format(
    name=_NAME,
    description="What `npu-smi info` shows of Huawei's Ascend NPUs: its table, `-t common`, `-t ecc`, `-t health`",
    sample="| 0     910B3               | OK            | 98.1        43                0    / 0             |",
    make=NpuSmiParser,
    testimony="machine",
    recognises=re.compile(
        r"^(?:[\w.-]+: )?\s*(?:\|\s*\d{1,4}\s+[\w.-]{1,40}\s*\|\s*(?:OK|Warning|Alarm|Critical|UNKNOWN)\s*\|"
        r"|\|\s*NPU\s+Name\s*\|\s*Health\s*\||\| npu-smi \d|NPU ID\s{3,}: \d"
        r"|Health Status\s{2,}: (?:OK|Warning|Alarm|Critical|UNKNOWN)\s*$"
        r"|(?:HBM|DDR) (?:Single|Double) Bit [\w -]{5,30}\s*: \d|NPU Real-time Power\(W\)\s*: )",
        re.ASCII,
    ),
)

"""What Cambricon's `cnmon` shows: the table of all MLUs.

    | Card  VF  Name       Firmware |               Bus-Id | Util        Ecc-Error |
    | Fan   Temp      Pwr:Usage/Cap |         Memory-Usage | Mode     Compute-Mode |
    |===============================+======================+=======================|
    | 0     /   MLU370-X8    v1.1.6 |         0000:13:00.0 | 0%                  0 |
    |  0%   28C        107 W/ 250 W |     0 MiB/ 20638 MiB | FULL          Default |
    -> {"kind": "accelerator_reading", "device": {"type": "mlu", "pci": "0000:13:00.0", "index": 0},
        "attributes": {"model": "MLU370-X8", "gpu_temp_c": 28, "power_w": 107, "power_cap_w": 250, ...}, ...}

Two rows are one card; a row of an instance (VF) but `/` is none. What kind of errors `Ecc-Error` counts nobody tells:
it is a value (`ecc_error`), no fault. "N/A" is missing. A line of date and time, as `cnmon` prints it first or in ISO
8601, dates what follows. Before 5 the table has no bus. Forms: tables in the guides of PaddlePaddle's MLU backend and
of other users, of cnmon 4.20, 5.10 and 6. No form is known of a card that is gone: it has no row.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from parsers.reports.tool_reading import ToolReading, moment_of_line
from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Device, Event, canonical_pci

_NAME = "cnmon"
_CARD = re.compile(r"(?P<card>\d{1,3})\s+/\s+(?P<model>MLU[\w.-]{1,30})\s+v[\w.]{1,20}", re.ASCII)
_STATE = re.compile(
    r"(?:\d{1,3}%|N/A|/)\s+(?P<temp>-?\d{1,3})C\s+(?P<power>\d{1,5}) ?W/ *(?P<cap>\d{1,5}) ?W", re.ASCII
)
_USED = re.compile(r"(?P<used>\d{1,9}) ?MiB/ *(?P<whole>\d{1,9}) ?MiB", re.ASCII)
_UTIL = re.compile(r"\d{1,3}%\s+(?P<ecc>\d{1,12}|N/A)", re.ASCII)
_CTIME = re.compile(
    r"[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d{2}:\d{2}:\d{2}) (?P<year>\d{4})\s*",
    re.ASCII,
)


class CnmonParser:
    """Decodes tables of one node. Holds the card whose first row was read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._time: datetime | None = None
        self._said: ToolReading | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of the card whose second row this is."""
        if text.lstrip()[:1] == "|":
            return list(self._row(text, line))
        if match := _CTIME.fullmatch(text[:40]):
            self._time = self._stamps.dated(match["month"], match["day"], match["clock"], match["year"])
        elif (moment := moment_of_line(text, self._context)) is not None:
            self._time = moment
        return []

    def flush(self) -> Iterable[Event]:
        """A card whose second row never came."""
        said, self._said = self._said, None
        return () if said is None else list(said.events(_NAME, self._context.node, self._time))

    def _row(self, text: str, line: int) -> Iterator[Event]:
        cells = [cell.strip() for cell in text.strip().strip("|").split("|", 4)]
        if len(cells) != 3:
            return
        if match := _CARD.fullmatch(cells[0]):
            yield from self.flush()
            said = self._said = ToolReading(Device("mlu", canonical_pci(cells[1]), int(match["card"])), line)
            said.values["model"] = match["model"]
            if errors := _UTIL.fullmatch(cells[2]):
                said.take("ecc_error", errors["ecc"])
        elif self._said is not None and (state := _STATE.fullmatch(cells[0])):
            said = self._said
            said.take("gpu_temp_c", state["temp"])
            said.take("power_w", state["power"])
            said.take("power_cap_w", state["cap"])
            if used := _USED.fullmatch(cells[1]):
                said.take("memory_used_mb", used["used"])
                said.take("memory_mb", used["whole"])
            yield from self.flush()


FORMAT = Format(
    name=_NAME,
    description="What Cambricon's `cnmon` shows: the table of all MLUs",
    sample="| 0     /   MLU370-X8    v1.1.6 |         0000:13:00.0 | 0%                  0 |",
    make=CnmonParser,
    testimony="machine",
    recognises=re.compile(
        r"^\| CNMON v\d|^\| Card  VF  Name\s|^\| \d{1,3}\s+/\s+MLU[\w.-]{1,30}\s+v[\w.]{1,20} \|", re.ASCII
    ),
)

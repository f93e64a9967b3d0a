"""What a vendor's own tool shows of an accelerator at one moment, as events: its values, its health, its memory errors.

    ToolReading(Device("npu", index=0, pci="0000:c1:00.0"), line=7, values={"power_w": 98.1}, health="Warning")
    -> Event(kind="accelerator_reading", attributes={"power_w": 98.1, "health": "Warning"})
       Event(kind="accelerator_health", severity="warning", ...)

A value that a tool does not have ("N/A", "NA", "-") is missing. A count of errors that is above zero is as old as the
counter: nobody knows when they came, and it warns. The names of values are those of `store/catalogs/telemetry.csv`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite

from parsers.text.parser import Context
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

# Readings that are open at once, one a node; and values of one.
MOST_OPEN, _MOST_VALUES = 1024, 128
# No record holds a greater whole number.
_MOST_COUNT = 2.0**63
_NUMBER = re.compile(r"\s*(-?\d{1,19}(?:\.\d{1,9})?)(?:\s+°?[A-Za-z%][\w/]{0,7})?\s*", re.ASCII)
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)", re.ASCII)
_UNCORRECTED = ("ecc_dbe", "ecc_dbe_ddr", "ecc_dbe_lifetime")
# A list of devices tells no more of one.
_NAMES = frozenset({"bus", "model", "serial"})
_FAULTY = frozenset({"warning", "alarm", "critical", "unknown"})


@dataclass(slots=True)
class ToolReading:
    """What was read of one device so far. `line`: the first of it; `fault`: why the tool calls it not well."""

    device: Device
    line: int
    values: dict[str, Attribute] = field(default_factory=dict)
    health: str | None = None
    fault: dict[str, Attribute] = field(default_factory=dict)

    def take(self, name: str, value: object) -> None:
        """One value under the name that records use; what is no number is missing."""
        number = number_of(value)
        if number is not None and len(self.values) < _MOST_VALUES:
            self.values[name] = number

    def events(self, source: str, node: str | None, time: datetime | None) -> Iterator[Event]:
        """Its values, and what of them is a fault; nothing where nothing was read."""
        if not self.values and self.health is None:
            return
        shown = ", ".join(f"{name} {value}" for name, value in list(self.values.items())[:4])
        said: dict[str, Attribute] = dict(self.values)
        if self.health is not None:
            said["health"] = self.health
            shown = ", ".join(filter(None, (f"health {self.health}", shown)))
        base = Event(time, node, source, "accelerator_reading", device=self.device, line=self.line)
        yield with_kind_meaning(replace(base, message=shown, attributes=said))
        if self.device.type == "gpu" and self.device.index is not None and self.device.pci and said.keys() <= _NAMES:
            words = f"GPU {self.device.index} is {self.device.pci}"
            yield with_kind_meaning(replace(base, kind="gpu_map", message=words, attributes={}))
        if self.health is not None and self.health.lower() in _FAULTY:
            told = (str(self.fault[name]) for name in ("fault_code", "information") if name in self.fault)
            words = ": ".join((f"health of {self.device.words()}: {self.health}", *told))
            why = {"health": self.health, **self.fault}
            fault = replace(base, kind="accelerator_health", message=words, attributes=why)
            yield with_kind_meaning(fault, self.health.lower())
        count = next((self.values[name] for name in _UNCORRECTED if self.values.get(name)), None)
        if isinstance(count, int | float) and count > 0:
            words = f"memory errors that {self.device.words()} could not correct: {count}"
            counts = {name: value for name, value in self.values.items() if name.startswith("ecc_")}
            yield with_kind_meaning(
                replace(base, kind="accelerator_ecc", message=words, attributes=counts), "uncorrected"
            )


def number_of(value: object) -> int | float | None:
    """A number as a tool writes it, with or without its unit; JSON's objects of value and unit are read, too."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value[:64])
        value = float(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    if not -_MOST_COUNT < value < _MOST_COUNT:
        return None
    return int(value) if value == int(value) else float(value)


def moment_of_line(text: str, context: Context) -> datetime | None:
    """The time of a line that begins with a date and time: it dates what is read after it."""
    return moment_of(MOMENT.match(text.strip()[:64]), context)


def moment_of(match: re.Match[str] | None, context: Context) -> datetime | None:
    """The time of a match of MOMENT, in the context's zone where it bears none; None of no time that there is."""
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(match[1].replace(",", "."))
        return (moment if moment.tzinfo else moment.replace(tzinfo=context.zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None

"""Redfish of a management controller: events and log entries, and what its resources say of power, leaks, heat, fans.

    {"@odata.type": "#Event.v1_7_0.Event", "Events": [{"MessageId": "Environmental.1.1.0.LeakDetectedCritical",
     "Severity": "Critical", "Message": "Leak detector 'Tray' reports a critical level leak.", ...}]}
    -> {"kind": "coolant_leak", "severity": "fatal", "attributes": {"check": "LeakDetectedCritical"}, ...}

The node is the reader's, whatever a document names: a controller speaks of its own node. Of a message the id decides
what it is about, then its words, since makers have registries of their own, then the sensor of an entry of the SEL; how
grave it is the controller says itself.
A resource's state is told once, a good one only after another. Sources: DMTF's data model (DSP0268), its registry
Environmental 1.1.0, and the examples of its OCP profiles for power shelves and cooling units.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from parsers.reports.reported_states import ReportedStates
from parsers.reports.sel_entries import meaning_of
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, moment_of, record_of, records_of, text_of
from parsers.text.parser import Context, Format
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

_TYPE = re.compile(r"#(?P<type>\w{1,60})\.", re.ASCII)
# What a message is about: searched in the key of its id, then in its words and in where it comes from.
_TOPICS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "coolant_leak",
        re.compile(r"^(?:Liquid|Coolant)?Leak(?:[A-Z]|$)|(?i:\bleak detector|\b(?:coolant|liquid|water) leak)"),
    ),
    ("power_supply", re.compile(r"[Pp]ower ?[Ss]uppl|\bPSU|PS_?\d\b|LineInput")),
    ("node_fan", re.compile(r"\b[Ff]an(?![a-z])|^Fan[A-Z]|FAN")),
    ("node_hot", re.compile(r"[Tt]emperature|[Tt]hermal|[Oo]ver.?[Tt]emp|[Oo]verheat|\bTEMP")),
)
_INPUT = re.compile(r"[Ll]oss ?[Oo]f|[Ll]ost|[Nn]o input|[Ii]nput ?[Ll]oss|[Oo]utOfRange")
# The ids that hold a node, whatever the words beside them: the registry's, and makers' that are built like it.
_LEAK_DETECTED = re.compile(r"(?:Liquid|Coolant)?LeakDetected")
# Whose id says nothing of it, and who writes of a program that leaks memory, or that there is no leak, writes of none.
_NO_LEAK = re.compile(r"(?i)memory|\bno\b|\bnot\b")
_COLD = re.compile(r"[Bb]elow|\b[Ll]ower\b")
# The variant of a kind that a controller's word for the health of a thing is.
_VARIANTS: Mapping[str, Mapping[str, str]] = {
    "coolant_leak": {"OK": "over", "Warning": "", "Critical": "critical"},
    "power_supply": {"OK": "over", "Warning": "", "Critical": "failed"},
    "node_fan": {"OK": "over", "Warning": "", "Critical": "failed"},
    "node_hot": {"OK": "over", "Warning": "", "Critical": "critical"},
    "node_power": {"OK": "on", "Warning": "off"},
}
# Places of one resource that are read: a chassis has some 300 sensors.
_MOST = 1000
_LONGEST_PATH, _LONGEST_NAME = 400, 200


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What one thing of a node is in: `path` names it, `health` is OK, Warning or Critical, as Redfish has it."""

    path: str
    kind: str
    health: str
    words: str
    has_no_input: bool = False

    def event(self, node: str | None, line: int | None = None) -> Event:
        """The event that this state is where it is news; it bears no time.

        Args:
            node: whose controller it was.
            line: where it stood.
        """
        variant = "input" if self.has_no_input and self.health != "OK" else _VARIANTS[self.kind][self.health]
        name = self.path.rstrip("/").rpartition("/")[2]
        said = attributes(name=name, path=self.path, health=self.health)
        event = Event(None, node, "redfish", self.kind, message=self.words, attributes=said, line=line)
        return with_kind_meaning(event, variant)


class RedfishParser(DocumentParser):
    """Decodes events, entries of logs and resources. Remembers what was not well."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._read, lists=("Events", "Members"))
        self._node = context.node
        self._states = ReportedStates()

    def _read(self, document: Document) -> Iterable[Event]:
        record = document.value
        if "MessageId" in record or ("Severity" in record and "Message" in record):
            event = message_event(record, self._node)
            return [] if event is None else [replace(event, line=document.line)]
        return [
            state.event(self._node, document.line)
            for state in resource_states(record)
            if self._states.changed((state.path, state.kind), None if state.health == "OK" else (state.health,))
        ]


def message_event(record: Mapping[str, Any], node: str | None) -> Event | None:
    """The event of one record of an Event, or of one LogEntry; None of what is well and of no kind of ours."""
    ident = text_of(record, "MessageId") or ""
    key, text = ident.rpartition(".")[2], text_of(record, "Message") or ident
    origin = (text_of(record_of(record, "OriginOfCondition"), "@odata.id") or "")[:_LONGEST_PATH]
    health = text_of(record, "MessageSeverity", "Severity") or "OK"
    kind = _topic(key) or _topic(f"{text} {origin}")
    is_leak_by_id = _LEAK_DETECTED.match(key) is not None
    is_no_leak = kind == "coolant_leak" and not is_leak_by_id and _NO_LEAK.search(text)
    if is_no_leak or (kind == "node_hot" and _COLD.search(f"{key} {text}")):
        kind = None
    if health not in ("OK", "Warning", "Critical"):
        return None
    sel = None if kind is not None else _of_sensor(record, text)
    if kind is None and health == "OK" and sel is None:
        return None
    named = {"check": key[:_LONGEST_NAME] or None, "name": origin.rpartition("/")[2] or None, "path": origin or None}
    said = attributes(**named, health=health, resolution=text_of(record, "Resolution"))
    time = moment_of(record, "EventTimestamp", "Created")
    event = Event(time, node, "redfish", kind or "health_event", message=text[:1000], attributes=said)
    if sel is not None:
        device = Device(sel[2]) if sel[2] else Device()
        return with_kind_meaning(replace(event, kind=sel[0], device=device), sel[1])
    if kind is None:
        judged = with_kind_meaning(replace(event, attributes={**said, "detector": "redfish"}))
        return replace(judged, severity="error", action="run_diagnostics") if health == "Critical" else judged
    has_no_input = kind == "power_supply" and health != "OK" and _INPUT.search(f"{key} {text}") is not None
    if kind == "coolant_leak" and health == "Critical" and not is_leak_by_id:
        return with_kind_meaning(event, "")  # its words speak of a leak, or its id of a detector: that holds no node
    return with_kind_meaning(event, "input" if has_no_input else _VARIANTS[kind][health])


def _of_sensor(record: Mapping[str, Any], text: str) -> tuple[str, str, str | None] | None:
    """Kind, variant and device of an entry of the SEL by its sensor's type; None of one that is none of these."""
    sensor = text_of(record, "SensorType")
    meaning = None if sensor is None else meaning_of(sensor, "", text)
    if meaning is None or meaning.kind == "health_event":
        return None
    variant = meaning.over if text_of(record, "EntryCode") == "Deassert" else meaning.variant
    return None if variant is None else (meaning.kind, variant, meaning.device)


def _topic(text: str) -> str | None:
    return next((kind for kind, words in _TOPICS if words.search(text)), None)


def resource_states(record: Mapping[str, Any]) -> list[ResourceState]:
    """The states that a resource tells, by its `@odata.type`; none of a resource that tells nothing of these things."""
    found = _TYPE.match(text_of(record, "@odata.type") or "")
    read = _READERS.get(found["type"]) if found else None
    if read is None:
        return []
    path = (text_of(record, "@odata.id") or text_of(record, "Id") or "")[:_LONGEST_PATH]
    return [state for state, _place in zip(read(record, path), range(_MOST), strict=False)]


def _health(record: Mapping[str, Any], *keys: str) -> str | None:
    """Of a thing that is there; None where it is absent, off, or says nothing."""
    status = record_of(record, "Status")
    if text_of(status, "State") in ("Absent", "Disabled"):
        return None
    said = text_of(record, *keys) or text_of(status, "Health")
    return said if said in ("OK", "Warning", "Critical") else None


def _place(record: Mapping[str, Any], path: str, number: int) -> str:
    own = text_of(record, "@odata.id", "DataSourceUri") or f"{path}#{text_of(record, 'MemberId') or number}"
    return own[:_LONGEST_PATH]


def _system(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    power = text_of(record, "PowerState")
    if power in ("On", "Off"):
        yield ResourceState(path, "node_power", "OK" if power == "On" else "Warning", f"The node's power is {power}")


def _supply(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    health, line = _health(record), text_of(record, "LineInputStatus")
    has_no_input = line in ("LossOfInput", "OutOfRange")
    if has_no_input and text_of(record_of(record, "Status"), "State") != "Absent":
        health = "Critical"
    if health is not None:
        words = f"{_named(record, path)}: {health}" + (f", input {line[:_LONGEST_NAME]}" if line else "")
        yield ResourceState(path, "power_supply", health, words, has_no_input)


def _supplies(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    for number, one in enumerate(records_of(record, "PowerSupplies")):
        yield from _supply(one, _place(one, path, number))


def _leaks(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    for group in records_of(record, "LeakDetectorGroups"):
        for number, one in enumerate(records_of(group, "Detectors")):
            yield from _leak(one, _place(one, path, number))


def _leak(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    if (health := _health(record, "DetectorState")) is not None:
        yield ResourceState(path, "coolant_leak", health, f"{_named(record, path)}: {health}")


def _fan(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    if (health := _health(record)) is not None:
        yield ResourceState(path, "node_fan", health, f"{_named(record, path)}: {health}")


def _thermal(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    for number, one in enumerate(records_of(record, "Temperatures")):
        if (health := _health(one)) is not None:
            words = _warm(one, path, one.get("ReadingCelsius"))
            yield ResourceState(_place(one, path, number), "node_hot", health, f"{words}: {health}")
    for number, one in enumerate(records_of(record, "Fans")):
        yield from _fan(one, _place(one, path, number))


def _sensor(record: Mapping[str, Any], path: str) -> Iterator[ResourceState]:
    health, measures = _health(record), text_of(record, "ReadingType")
    if health is None:
        return
    if measures == "Temperature":
        yield ResourceState(path, "node_hot", health, f"{_warm(record, path, record.get('Reading'))}: {health}")
    elif measures == "Rotational":
        yield ResourceState(path, "node_fan", health, f"{_named(record, path)}: {health}")


def _named(record: Mapping[str, Any], path: str) -> str:
    return (text_of(record, "Name", "DeviceName", "FanName", "UserLabel") or path)[:_LONGEST_NAME]


def _warm(record: Mapping[str, Any], path: str, reading: object) -> str:
    degrees = f" {reading:g} °C" if isinstance(reading, int | float) and not isinstance(reading, bool) else ""
    return f"{_named(record, path)}{degrees}"


_READERS = {
    "ComputerSystem": _system,
    "PowerSupply": _supply,
    "Power": _supplies,
    "LeakDetection": _leaks,
    "LeakDetector": _leak,
    "Fan": _fan,
    "Thermal": _thermal,
    "Sensor": _sensor,
}

FORMAT = Format(
    name="redfish",
    description="Redfish events, log entries and resources of management controllers (BMC)",
    sample='{"@odata.type": "#Event.v1_7_0.Event", "Id": "1", "Name": "Event Array", "Events": [{"EventType": "Other", '
    '"EventId": "346", "Severity": "Critical", "Message": "Temperature \'Ambient\' reading of 50 degrees (C) is above '
    'the 45 upper critical threshold.", "MessageId": "Environmental.1.1.TemperatureAboveUpperCriticalThreshold", '
    '"OriginOfCondition": {"@odata.id": "/redfish/v1/Chassis/1/Sensors/Ambient"}}]}',
    make=RedfishParser,
    testimony="machine",
    recognises=re.compile(r'"@odata\.(?:type|id)" ?: ?"(?:#|/redfish/)'),
    shape="document",
)

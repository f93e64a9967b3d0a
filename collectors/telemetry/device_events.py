"""The events of telemetry: what was seen of a device, as the record that is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from store.plural import many
from store.records.event import Action, Attribute, Cause, Device, Event, Severity, with_id
from store.records.fault_catalog import Counter, Fault, kind_meanings, with_kind_meaning, xid
from store.records.telemetry import ACCELERATORS, MAX_DEVICES, MAX_MEASURES, Sample


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of a device. `counter`: which one rose. `whole_node`: it is not of that device alone."""

    kind: str
    message: str
    severity: Severity = "info"
    cause: Cause = "unknown"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    counter: str | None = None
    code: int | None = None
    whole_node: bool = False
    action: Action | None = None


class TelemetryDevice(Protocol):
    """A device that is watched."""

    node: str
    source: str
    name: str | None

    def device(self) -> Device:
        """Where it is."""


def finding_event(
    finding: Finding, whose: tuple[str, str, str | None], device: Device, time: datetime, origin: str
) -> Event:
    """The event of a finding; `whose` is the node, the source, and the device's name where it has one."""
    node, source, name = whose
    named: dict[str, Attribute] = {} if name is None or finding.whole_node else {"name": name}
    event = Event(
        time=time,
        node=node,
        source=source,
        kind=finding.kind,
        code=finding.code,
        severity=finding.severity,
        cause=finding.cause,
        action=finding.action or ("none" if finding.severity == "info" else "watch"),
        device=Device() if finding.whole_node else device,
        message=finding.message,
        attributes={**named, **finding.attributes},
    )
    return with_id(event, origin)


# Beyond it JSON has no whole number for others.
_MOST_COUNT = 2.0**63


def rise(name: str, known: Counter, increase: float) -> Finding:
    """A counter rose."""
    count = int(increase) if increase == int(increase) and increase < _MOST_COUNT else increase
    told: dict[str, Attribute] = {"count": count, "counter": name}
    return Finding(known.kind, known.rise(increase), known.severity, known.cause, told, counter=name)


# Faults of the machine that a changed gauge proves, though no line tells more: what a program did (31, 43) it does not.
_PROVEN: frozenset[Cause] = frozenset({"hardware", "fabric", "driver"})
_MOST_XID = 2**31


def proven_xid(code: int) -> Fault | None:
    """What a code means that the gauge proves by itself; None for one that the kernel log must explain."""
    fault = xid(code)
    if fault is None or fault.cause not in _PROVEN or fault.severity == "info" or fault.decided_by_line:
        return None
    return fault


def no_counter(name: str) -> Finding:
    """What has a counter's name falls again and again: another thing stands behind it now."""
    message = f"The metric {name} falls again and again: it is no counter, so that its rises tell nothing"
    return Finding("metric_changed", message, attributes={"metric": name})


def xid_changed(code: int, before: datetime | None, *, first: bool) -> Finding | None:
    """The last Xid that an exporter shows is another one than at `before`; None for what is no code.

    `first`: it stood there when the device was first seen, so its age is unknown.
    """
    if not 0 < code < _MOST_XID:
        return None
    fault = proven_xid(code)
    meaning = f": {fault.description}" if fault else ""
    if first:
        message = f"The last Xid of this device was {code} when it was first seen{meaning}. Its age is unknown."
        attributes: dict[str, Attribute] = {"age": "unknown"}
        return Finding("xid_hint", message, "warning" if fault else "info", attributes=attributes, code=code)
    since = {} if before is None else {"after": before.isoformat()}
    if fault is None:
        message = f"The last Xid of this device is now {code}; the kernel log tells more."
        return Finding("xid_hint", message, attributes=since, code=code)
    message = f"The exporter shows Xid {code}{meaning}"
    return Finding(
        "xid", message, fault.severity, fault.cause, {"gauge": True, **since}, code=code, action=fault.action
    )


def finding_of(kind: str, message: str, variant: str = "", **attributes: Attribute) -> Finding:
    """A finding that the table of kinds judges, of the whole node."""
    known = kind_meanings()[kind, variant]
    return Finding(
        kind,
        message or known.description,
        known.severity,
        known.cause,
        attributes={name: value for name, value in attributes.items() if value is not None},
        whole_node=True,
        action=known.action,
    )


def meant_of_device(kind: str, variant: str, message: str = "") -> Finding:
    """A finding that the table of kinds judges, of one device."""
    known = kind_meanings()[kind, variant]
    return Finding(kind, message or known.description, known.severity, known.cause, action=known.action)


def device_missing(kind: str, name: str | None, index: int | None) -> Finding:
    """A device is reported no more."""
    gone = "gpu_missing" if kind in ACCELERATORS else "device_missing"
    return Finding(gone, f"{_words(kind, name, index)} is no longer reported", "warning")


def device_returned(sample: Sample) -> Finding:
    """It is back."""
    back = "gpu_returned" if sample.type in ACCELERATORS else "device_returned"
    return Finding(back, f"{_words(sample.type, sample.name, sample.gpu)} is reported again")


def counters_began_anew(device: Device | None, devices: int) -> Finding:
    """Counters fell: of one device, or of several of the node at once."""
    whose = "the device" if device else f"{devices} devices"
    attributes: dict[str, Attribute] = {"devices": devices}
    message = f"Counters of {whose} began anew: a driver was loaded or a device reset"
    return Finding("counter_reset", message, cause="driver", attributes=attributes, whole_node=device is None)


def metric_event(
    one: TelemetryDevice, time: datetime, change: tuple[str, str, str], devices: int, origin: str
) -> Event:
    """A value is missing on a node, or there again; `change` is the kind, the value's name and the message."""
    kind, name, message = change
    attributes: dict[str, Attribute] = {"metric": name} | ({"devices": devices} if devices else {})
    alone = devices == 1
    finding = Finding(kind, message, attributes=attributes, whole_node=not alone)
    return finding_event(finding, (one.node, one.source, one.name), one.device(), time, origin)


def exporter_event(node: str, time: datetime, kind: str, message: str, origin: str, source: str = "dcgm") -> Event:
    """An exporter went silent, answers again, or repeats itself."""
    event = Event(time=time, node=node, source=source, kind=kind, message=message[:500], attributes={"url": origin})
    return with_id(with_kind_meaning(event), origin)


def left_out_event(node: str, time: datetime, source: str, values: int, origin: str) -> Event:
    """A node has more than a roll-up holds: said once."""
    message = f"{many(values, 'value was', 'values were')} left out: a roll-up holds {MAX_DEVICES} devices "
    message += f"and {MAX_MEASURES} measures of a node"
    attributes: dict[str, Attribute] = {"url": origin, "count": values}
    event = Event(time, node, source, "measures_left_out", message=message, attributes=attributes)
    return with_id(with_kind_meaning(event), origin)


def _words(kind: str, name: str | None, index: int | None) -> str:
    return f"{kind.upper() if kind in ACCELERATORS else kind} {index if name is None else name}"

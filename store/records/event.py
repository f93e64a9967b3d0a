"""An event: what happened, where, when; one decoded line or one threshold crossing.

The one record that every source speaks and every room reads.
On the wire (`foreshock parse`, `POST /events`) it is one line of JSON with every key present:

    {"line": 3, "time": "2025-03-01T04:05:06.789000Z", "node": "gpu-017", "source": "kernel", "kind": "xid",
     "code": 79, "severity": "fatal", "cause": "hardware", "action": "reboot_node",
     "device": {"type": "gpu", "pci": "0000:0f:00.0", "index": null, "uuid": null, "port": null},
     "message": "GPU has fallen off the bus.", "attributes": {"pid": 1234, "process": "python"}}
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import orjson

Severity: TypeAlias = Literal["info", "warning", "error", "fatal"]
Cause: TypeAlias = Literal["hardware", "driver", "application", "fabric", "host", "storage", "unknown"]
Action: TypeAlias = Literal[
    "none",
    "watch",
    "restart_app",
    "reset_gpu",
    "reset_fabric",
    "reboot_node",
    "drain_node",
    "run_diagnostics",
    "replace_part",
    "contact_support",
]
Attribute: TypeAlias = str | int | float | bool | None
# The attributes that hold a device's name, first choice first.
NAMING = ("name", "dimm")

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
CAUSES: tuple[Cause, ...] = get_args(Cause)
ACTIONS: tuple[Action, ...] = get_args(Action)
# Domain (4 or 8 digits, or none), bus, device, function (or none). Drivers before 2010 print the bus with
# four digits and no domain: `0001:00`.
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE | re.ASCII)
_OLD_PCI = re.compile(r"00([0-9a-f]{2}):([0-9a-f]{2})", re.IGNORECASE | re.ASCII)


class RecordError(ValueError):
    """A record from outside that does not fit; the message names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where in a node or fabric: `type` is gpu, nvswitch, hca, port, switch, node, npu, disk ..."""

    type: str = "node"
    pci: str | None = None
    index: int | None = None
    uuid: str | None = None
    port: int | None = None

    def key(self) -> str:
        """The same text for the same device: what incidents are coalesced by."""
        name = self.pci or self.uuid or ("" if self.index is None else str(self.index))
        return f"{self.type}:{name}" + ("" if self.port is None else f":{self.port}")

    def is_bare(self) -> bool:
        """Whether nothing but its type is known: a name may still tell it apart."""
        return self.pci is None and self.uuid is None and self.index is None and self.port is None

    def words(self, name: str | None = None) -> str:
        """What an operator reads: `gpu 0000:0f:00.0`, `port 0x248a port 12`, by its name `disk nvme0`.

        Args:
            name: what the device is called (`Event.name`), where it has a name.
        """
        if self.type == "node":
            return self.type
        index = None if self.index is None else str(self.index)
        known = self.pci or self.uuid or index or name
        named = f"({name})" if name and known != name and name not in (known or "") else None
        port = None if self.port is None else f"port {self.port}"
        return " ".join(part for part in (self.type, known, named, port) if part is not None)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `time` is aware UTC, or None where the source bears no absolute time."""

    time: datetime | None
    node: str | None
    source: str
    kind: str
    code: int | None = None
    severity: Severity = "info"
    cause: Cause = "unknown"
    action: Action = "none"
    device: Device = field(default_factory=Device)
    message: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    line: int | None = None
    file: str | None = None
    id: str | None = None

    def with_attributes(self, attributes: Mapping[str, Attribute]) -> "Event":
        """The same with other attributes; three times faster than `replace`."""
        return Event(
            self.time,
            self.node,
            self.source,
            self.kind,
            self.code,
            self.severity,
            self.cause,
            self.action,
            self.device,
            self.message,
            attributes,
            self.line,
            self.file,
            self.id,
        )

    def run(self) -> str | None:
        """The training run that the event speaks of, where its source names one."""
        run = self.attributes.get("run")
        return run if isinstance(run, str) else None

    def name(self) -> str | None:
        """What the device is called: an interface, a disk, an InfiniBand device, a DIMM's label."""
        for key in NAMING:
            found = self.attributes.get(key)
            if found is not None and found != "":
                return str(found)
        return None


# A log speaks of few devices many times.
@lru_cache(maxsize=4096)
def canonical_pci(text: str) -> str | None:
    """A PCI address as lower-case dddd:bb:dd.f, or None where the text is none: PCI:0000:0F:00 is 0000:0f:00.0."""
    bare = text.strip().replace("0x", "")  # Linux 6.17 names a device [0x3b:0x00.0] in a report of its IOMMU
    if bare[:4].upper() == "PCI:":
        bare = bare[4:]
    if old := _OLD_PCI.fullmatch(bare):
        return f"0000:{old[1]}:{old[2]}.0".lower()
    match = _PCI.fullmatch(bare)
    if not match:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4] or 0}".lower()


def event_id(event: Event, origin: str = "") -> str:
    """A stable id of 32 hex digits.

    `origin` tells two equal lines apart (file and offset, or boot id and sequence number);
    without one the content alone decides, so that re-sending the same record changes nothing.
    """
    content = orjson.dumps(
        [
            origin,
            event.time,
            event.node,
            event.source,
            event.kind,
            event.code,
            event.device.key(),
            event.message,
            dict(event.attributes),
        ],
        option=orjson.OPT_SORT_KEYS | orjson.OPT_NAIVE_UTC,
    )
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def with_id(event: Event, origin: str = "") -> Event:
    """The event with an id: its own where it has one."""
    return event if event.id else replace(event, id=event_id(event, origin))


def kind_key(kind: str, code: int | None) -> str:
    """How an incident counts a kind of event: `xid:79`, `link_down`."""
    return kind if code is None else f"{kind}:{code}"


# Begins the ids that the store makes for events whose own was taken by another node's; no sender can have one.
BOUND = "~"


def owner_of(node: str | None, run: str | None) -> str:
    """Whose events share an id: a node's, or those of a run that name no node."""
    return node if node is not None else f"\0{run or ''}"


def bound_id(ident: str, owner: str) -> str:
    """The id of an event whose own another owner's event has: no other owner can come to the same."""
    return BOUND + hashlib.blake2b(f"{owner}\0{ident}".encode("utf-8", "replace"), digest_size=16).hexdigest()


def with_bound_id(event: Event) -> Event:
    """The event with an id that is its owner's alone."""
    return replace(event, id=bound_id(event.id or "", owner_of(event.node, event.run())))


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds: 2025-03-01T04:05:06.789000Z."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{utc.isoformat(timespec='microseconds')[:-6]}Z"


def parse_time(text: str) -> datetime:
    """An RFC 3339 / ISO 8601 time as aware UTC; one without a zone is taken as UTC.

    Raises:
        RecordError: the text is no time.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RecordError(f"{text[:40]!r} is no time: write it as 2025-03-01T04:05:06Z") from error


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    """Whole microseconds since 1970, exactly: a float of seconds would round."""
    return (moment - EPOCH) // _US


def from_us(moment_us: int) -> datetime:
    """The aware UTC moment of microseconds since 1970.

    Raises:
        OverflowError: it is of no year between 1 and 9999.
    """
    return EPOCH + moment_us * _US


def is_datable(moment: datetime) -> bool:
    """Whether a log bears its year: arithmetic around another would overflow."""
    return 1970 <= moment.year < 9999


def check_time(field: str, moment: datetime) -> datetime:
    """The moment.

    Raises:
        RecordError: it is of a year that no log bears.
    """
    if not is_datable(moment):
        raise RecordError(f"{field!r} is in the year {moment.year}: use one between 1970 and 9998")
    return moment


def time_among(attributes: Mapping[str, Attribute], key: str) -> datetime | None:
    """The time that an attribute holds; None where it holds none.

    Raises:
        RecordError: it is no time, or one of a year that no log bears.
    """
    value = attributes.get(key)
    if not isinstance(value, str) or not value:
        return None
    return check_time(key, parse_time(value))


def to_wire(event: Event) -> dict[str, Any]:
    """The event as DESIGN's JSON object; `id` and `file` only where there is one."""
    device = event.device
    wire: dict[str, Any] = {
        "line": event.line,
        "time": None if event.time is None else format_time(event.time),
        "node": event.node,
        "source": event.source,
        "kind": event.kind,
        "code": event.code,
        "severity": event.severity,
        "cause": event.cause,
        "action": event.action,
        "device": {
            "type": device.type,
            "pci": device.pci,
            "index": device.index,
            "uuid": device.uuid,
            "port": device.port,
        },
        "message": event.message,
        "attributes": dict(event.attributes),
    }
    if event.file is not None:
        wire["file"] = event.file
    if event.id is not None:
        wire["id"] = event.id
    return wire


def from_wire(wire: Mapping[str, Any]) -> Event:
    """The event that a JSON object describes; a missing key is unknown.

    Raises:
        RecordError: `kind` or `source` is missing, or a value is of the wrong type.
    """
    for key in ("source", "kind"):
        if not isinstance(wire.get(key), str) or not wire[key]:
            raise RecordError(f"{key!r} must be a non-empty string")
    time = _optional(wire, "time", str)
    attributes = _optional(wire, "attributes", dict) or {}
    if not all(isinstance(v, str | int | float | bool | None) for v in attributes.values()):
        raise RecordError("'attributes' holds plain values only: flatten what is nested")
    return Event(
        time=None if time is None else parse_time(time),
        node=_optional(wire, "node", str),
        source=wire["source"],
        kind=wire["kind"],
        code=_integer(wire, "code"),
        severity=_word(wire, "severity", SEVERITIES, "info"),
        cause=_word(wire, "cause", CAUSES, "unknown"),
        action=_word(wire, "action", ACTIONS, "none"),
        device=device_from_wire(_optional(wire, "device", dict) or {}),
        message=_optional(wire, "message", str) or "",
        attributes=attributes,
        line=_integer(wire, "line"),
        file=_optional(wire, "file", str),
        id=_optional(wire, "id", str),
    )


def device_from_wire(wire: Mapping[str, Any]) -> Device:
    """The device of a JSON object.

    Raises:
        RecordError: a value is of the wrong type.
    """
    return Device(
        type=_optional(wire, "type", str) or "node",
        pci=_optional(wire, "pci", str),
        index=_integer(wire, "index"),
        uuid=_optional(wire, "uuid", str),
        port=_integer(wire, "port"),
    )


def _optional(wire: Mapping[str, Any], key: str, kind: type) -> Any:
    value = wire.get(key)
    if value is not None and not isinstance(value, kind):
        raise RecordError(f"{key!r} must be {kind.__name__} or null, not {type(value).__name__}")
    return value


def _integer(wire: Mapping[str, Any], key: str) -> int | None:
    value = _optional(wire, key, int)
    if isinstance(value, bool) or (value is not None and not -(2**63) <= value < 2**63):
        raise RecordError(f"{key!r} must be a 64-bit integer or null")
    return value  # type: ignore[no-any-return]  # _optional has checked it


def _word(wire: Mapping[str, Any], key: str, words: tuple[Any, ...], default: Any) -> Any:
    value = wire.get(key) or default
    if value not in words:
        raise RecordError(f"{key!r} is {str(value)[:40]!r}: use one of {', '.join(words)}")
    return value

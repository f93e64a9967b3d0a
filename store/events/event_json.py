"""Event decoding in bulk: JSON straight into `Event`, five times as fast as one by one, or not at all.

    decode_events(b'[{"source": "kernel", "kind": "xid", ...}, ...]')     # or one object a line

It accepts no more than `from_wire` does and makes the same events of it. It returns None for a body in which anything
does not fit. The caller then reads the records one by one and names the bad ones.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import msgspec

from store.records.event import Event, RecordError

# Indexed text: PostgreSQL takes 2,704 bytes of an index entry at most.
MAX_NAME = 255
MAX_MESSAGE = 64 * 1024
# Of one event: all its attributes together, as text; a device's names; a file's.
MAX_ATTRIBUTES = 256
MAX_ATTRIBUTE_CHARS = 64 * 1024
MAX_FILE = 4096

_ONE = msgspec.json.Decoder(Event)
_MANY = msgspec.json.Decoder(list[Event])
# A key or a NUL that is written with an escape.
_ESCAPED = b"\\u00"
# 2025-03-01T04:05:06.789000Z, as `format_time` writes it, is recognised by its length: the decoder looks at the rest.
# The group is empty, so that no text is copied.
_OUR_TIME = re.compile(rb'"time":"[^"]{19}\.[^"]{6}Z"()')
# More digits than a microsecond's would be rounded, not cut; a small z is no zone.
_OTHER_TIME = re.compile(
    rb'"time"\s*:\s*"(?!\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?")', re.ASCII
)
_columns = attrgetter(
    *("time", "kind", "source", "node", "id", "device", "attributes", "message", "code", "line"),
)


def decode_events(body: bytes) -> list[Event] | None:
    """The events of a JSON array or of NDJSON; None where anything is not as it should be."""
    if b"\\" in body and _ESCAPED in body:  # one byte is found many times as fast as five
        return None
    try:
        text = body.strip()
        events = _MANY.decode(text) if text.startswith(b"[") else _ONE.decode_lines(text)
        events = _in_utc(events)
        return events if not events or _fit(events, body) else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return None


def _fit(events: list[Event], body: bytes) -> bool:
    """Whether events, their times in UTC, are such as every database takes; looked at a field at a time."""
    moments, kinds, sources, nodes, ids, devices, attributes, messages, codes, lines = zip(
        *map(_columns, events), strict=True
    )
    dated = [moment for moment in moments if moment is not None]
    keys: set[str] = set().union(*attributes)
    # A time may stand among the attributes, too.
    if (len(_OUR_TIME.findall(body)) != len(dated) or "time" in keys) and _OTHER_TIME.search(body):
        return False
    if dated and not 1970 <= min(dated).year <= max(dated).year < 9998:
        return False
    # A larger integer is a float to one of two readers.
    values = [value for each in attributes for value in each.values()]
    integers = {value for value in values if value.__class__ is int}
    different = set(kinds)
    return (
        "telemetry" not in different
        and _are_names(different | set(sources))
        and _are_names({*nodes, *ids} - {None})
        and ("run" not in keys or _are_names({run for each in attributes if isinstance(run := each.get("run"), str)}))
        and max(map(len, messages)) <= MAX_MESSAGE
        and "" not in {device.type for device in devices}
        and _are_small(events, attributes, keys.union(value for value in values if value.__class__ is str))
        and _are_integers(integers.union(codes, lines))
        and _are_integers({device.index for device in devices} | {device.port for device in devices})
    )


def check_size(event: Event) -> None:
    """Refuse an event that is larger than any real one.

    Raises:
        RecordError: the message names the field.
    """
    if len(event.attributes) > MAX_ATTRIBUTES:
        raise RecordError(f"'attributes' has {len(event.attributes)} keys: {MAX_ATTRIBUTES} are the most")
    if (count := _chars(event.attributes)) > MAX_ATTRIBUTE_CHARS:
        raise RecordError(f"'attributes' has {count} characters: {MAX_ATTRIBUTE_CHARS} are the most, cut them")
    for field, text in (("type", event.device.type), ("pci", event.device.pci), ("uuid", event.device.uuid)):
        if text is not None and len(text) > MAX_NAME:
            raise RecordError(f"'device' has a {field!r} of over {MAX_NAME} characters: cut it")
    if event.file is not None and len(event.file) > MAX_FILE:
        raise RecordError(f"'file' is over {MAX_FILE} characters: cut it")


def _chars(attributes: Mapping[str, Any]) -> int:
    return sum(map(len, attributes)) + sum([len(value) for value in attributes.values() if value.__class__ is str])


def _are_small(events: list[Event], columns: Sequence[Mapping[str, Any]], texts: Iterable[str]) -> bool:
    """Whether `check_size` lets all pass; the attributes are added up only where they could be too many."""
    widest, longest = max(map(len, columns)), max(map(len, texts), default=0)
    if widest > MAX_ATTRIBUTES:
        return False
    if 2 * widest * longest > MAX_ATTRIBUTE_CHARS and max(map(_chars, columns)) > MAX_ATTRIBUTE_CHARS:
        return False
    devices = {event.device for event in events}
    names = {name for device in devices for name in (device.type, device.pci, device.uuid) if name}
    files = {event.file for event in events if event.file}
    return max(map(len, names), default=0) <= MAX_NAME and max(map(len, files), default=0) <= MAX_FILE


def _are_names(texts: Collection[Any]) -> bool:
    return not texts or 0 < min(map(len, texts)) <= max(map(len, texts)) <= MAX_NAME


def _are_integers(values: set[Any]) -> bool:
    """Of 64 bits, apart from None."""
    found = values - {None}
    return not found or -(2**63) <= min(found) <= max(found) < 2**63


def _in_utc(events: list[Event]) -> list[Event]:
    """The events with their times in UTC; a time without a zone is UTC."""
    if all(event.time is None or event.time.tzinfo is UTC for event in events):
        return events
    return [event if event.time is None else replace(event, time=_utc(event.time)) for event in events]


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)

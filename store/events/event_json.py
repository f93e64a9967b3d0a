"""Event decoding in bulk: JSON straight into `Event`, five times as fast as one by one, or not at all.

    decode_events(b'[{"source": "kernel", "kind": "xid", ...}, ...]')     # or one object a line

It accepts no more than `from_wire` does and makes the same events of it. It returns None for a body in which anything
does not fit. The caller then reads the records one by one and names the bad ones.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import msgspec

from store.records.event import Event

# Indexed text: PostgreSQL takes 2,704 bytes of an index entry at most.
MAX_NAME = 255
MAX_MESSAGE = 64 * 1024

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
    integers = {value for each in attributes for value in each.values() if value.__class__ is int}
    different = set(kinds)
    return (
        "telemetry" not in different
        and _are_names(different | set(sources))
        and _are_names({*nodes, *ids} - {None})
        and ("run" not in keys or _are_names({run for each in attributes if isinstance(run := each.get("run"), str)}))
        and max(map(len, messages)) <= MAX_MESSAGE
        and "" not in {device.type for device in devices}
        and _are_integers(integers.union(codes, lines))
        and _are_integers({device.index for device in devices} | {device.port for device in devices})
    )


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

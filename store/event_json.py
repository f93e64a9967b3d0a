"""Events as JSON in bulk, some five times as fast as one by one: straight into `Event`, or not at all.

    decode_events(b'[{"source": "kernel", "kind": "xid", ...}, ...]')     # or one object a line

It takes no more than `from_wire` does and makes the same events of it. A body of which anything does not fit is None:
then the records are read one by one, and those that are bad are named.
"""

import re
from datetime import UTC, datetime

import msgspec

from store.event import Event

# Indexed text: PostgreSQL takes 2,704 bytes of an index entry at most.
MAX_NAME = 255
MAX_MESSAGE = 64 * 1024

_ONE = msgspec.json.Decoder(Event)
_MANY = msgspec.json.Decoder(list[Event])
# A key or a NUL that is written with an escape.
_ESCAPED = b"\\u00"
# More digits than a microsecond's would be rounded, not cut; a small z is no zone.
_OTHER_TIME = re.compile(
    rb'"time"\s*:\s*"(?!\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?")', re.ASCII
)


def decode_events(body: bytes) -> list[Event] | None:
    """The events of a JSON array or of NDJSON; None where anything is not as it should be."""
    if _ESCAPED in body or _OTHER_TIME.search(body):
        return None
    try:
        text = body.strip()
        events = _MANY.decode(text) if text.startswith(b"[") else _ONE.decode_lines(text)
        return events if all(map(_fits, events)) else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        return None


def _fits(event: Event) -> bool:
    """Whether an event is one that every database takes. Its time is put into UTC."""
    time = event.time
    if time is not None:
        if time.tzinfo is not UTC:
            _set(event, "time", _utc(time))
        if not 1970 <= time.year < 9998:
            return False
    device = event.device
    return (
        0 < len(event.source) <= MAX_NAME
        and 0 < len(event.kind) <= MAX_NAME
        and event.kind != "telemetry"
        and (event.node is None or 0 < len(event.node) <= MAX_NAME)
        and (event.id is None or 0 < len(event.id) <= MAX_NAME)
        and len(event.message) <= MAX_MESSAGE
        and device.type != ""
        and (event.code is None or -(2**63) <= event.code < 2**63)
        and (event.line is None or -(2**63) <= event.line < 2**63)
        and (device.index is None or -(2**63) <= device.index < 2**63)
        and (device.port is None or -(2**63) <= device.port < 2**63)
        and _plain(event)
    )


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _plain(event: Event) -> bool:
    """Attributes that both readers read alike (a larger integer is a float to one of them), and a run with a name."""
    for value in event.attributes.values():
        if value.__class__ is int and not -(2**63) <= value < 2**63:
            return False
    run = event.attributes.get("run")
    return not isinstance(run, str) or 0 < len(run) <= MAX_NAME


# A frozen record that nobody else has seen yet.
_set = object.__setattr__

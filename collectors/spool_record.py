"""One record of the spool: a line that says when and how far, then one item a line.

    {"at": 1740801906.789, "positions": {"kmsg": {...}}}
    {"time": "2025-03-01T04:05:06.789000Z", "kind": "xid", ...}

Items stay bytes: what is shipped is never taken apart and put together again, so that a backlog costs no memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

# One record holds no more than this, so that a batch can be filled well.
_MOST_ITEMS = 250
_MOST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """What a payload says: when it was written (Unix time), positions, and the items as JSON text."""

    at: float
    positions: Mapping[str, Any]
    items: tuple[bytes, ...]
    damaged_bytes: int = 0  # of items that are no JSON though the checksum fits


def encode(at: float, positions: Mapping[str, Any], items: Sequence[bytes] = ()) -> bytes:
    """The payload of a record."""
    return b"\n".join((orjson.dumps({"at": at, "positions": positions}), *items))


def decode(payload: bytes) -> Record | None:
    """The record of a payload; None where it makes no sense."""
    head, *lines = payload.split(b"\n")
    found = _loads(head)
    if found is None or not isinstance(found.get("positions", {}), dict):
        return None
    if isinstance(found.get("events"), list):  # as they were written before items had lines of their own
        lines = [orjson.dumps(item) for item in found["events"]]
    good = tuple(line for line in lines if _loads(line) is not None)
    damaged = sum(map(len, lines)) - sum(map(len, good))
    at = found.get("at")
    return Record(at if isinstance(at, float | int) else 0.0, found.get("positions", {}), good, damaged)


def parts(items: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Items in groups that one record holds each."""
    part: list[bytes] = []
    size = 0
    for item in items:
        if part and (len(part) >= _MOST_ITEMS or size + len(item) > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item)
    if part:
        yield part


def payloads_of(at: float, positions: Mapping[str, Any], items: Sequence[bytes]) -> list[bytes]:
    """Items as records; the positions stand in the last one, so that they count when all of the items are there."""
    groups = list(parts(items))
    return [encode(at, positions if group is groups[-1] else {}, group) for group in groups]


def is_fault(item: bytes) -> bool:
    """Whether an event is more than information."""
    found = _loads(item)
    return found is not None and found.get("severity") != "info"


def _loads(line: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None

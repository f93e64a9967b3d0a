"""Fields of a JSON object from outside: of the type asked for, or missing.

text_of({"node": "gpu-017", "host": 3}, "host", "node") -> "gpu-017"
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from store.records.event import Attribute, RecordError, parse_time

MAX_MESSAGE = 1000
MAX_TEXT = 300
# Go's zero time, and the clocks that were never set.
_FIRST_YEAR = 1971


def text_of(record: Mapping[str, Any], *keys: str) -> str | None:
    """The first text that is not empty under the keys, without blanks around it."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and (value := value.strip()):
            return value
    return None


def record_of(record: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The first object under the keys; an empty one for none."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, dict):
            return value
    return {}


def records_of(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list; none where there is no list."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def whole_of(value: object) -> int | None:
    """A whole number, also as text (protobuf writes 64-bit numbers so); None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(2**63) <= value < 2**63 else None


def moment_of(record: Mapping[str, Any], *keys: str) -> datetime | None:
    """The first time under the keys: RFC 3339, or protobuf's object of seconds and nanos. A zero time is none."""
    for key in keys:
        value = record.get(key)
        moment = None
        if isinstance(value, dict):
            moment = _of_epoch(whole_of(value.get("seconds")), whole_of(value.get("nanos")) or 0)
        elif isinstance(value, str):
            try:
                moment = parse_time(value)
            except RecordError:
                continue
        if moment is not None and moment.year >= _FIRST_YEAR:
            return moment
    return None


def plain(value: object) -> Attribute:
    """A value as an attribute may be: text is cut, a list becomes text, an object or a NaN is missing."""
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return whole_of(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return ",".join(str(item) for item in value if isinstance(item, str | int))[:MAX_TEXT] or None
    return None


def attributes(**values: object) -> dict[str, Attribute]:
    """The values that there are, as attributes."""
    found = {name: plain(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _of_epoch(seconds: int | None, nanos: int) -> datetime | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds + nanos // 1000 / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        return None

"""A roll-up as the JSON object that `POST /api/v1/telemetry` takes: its fields, the hour in RFC 3339."""

from dataclasses import fields
from typing import Any

from store.event import format_time
from store.telemetry import Rollup

_NAMES = tuple(f.name for f in fields(Rollup))


def rollup_to_wire(rollup: Rollup) -> dict[str, Any]:
    """Every field by its name; unknown is null."""
    wire: dict[str, Any] = {name: getattr(rollup, name) for name in _NAMES}
    wire["time"] = format_time(rollup.time)
    return wire

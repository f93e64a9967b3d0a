"""`POST /telemetry`: roll-ups of a node and hour. Raw samples stay with the sender."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from fastapi import APIRouter, Response

from api.answers.reply import reply
from api.edge.auth import Caller, Ingester
from api.edge.body import Body, records_body
from api.edge.openapi import PREFIX, answer
from api.intake.entries import check_age, check_name, own_node, records, sift
from api.intake.records import JointBatch, send_rollups
from api.server.state import Server, State
from store.events.append import MAX_AHEAD
from store.records.event import RecordError, check_time, parse_time
from store.records.telemetry import BEYOND, MAX_DEVICE_NAME, MAX_DEVICES, MAX_MEASURES, Rollup, hour_of, sensor_range
from wire.events import BatchResultJson

router = APIRouter(prefix=PREFIX, tags=["telemetry"])

_EXAMPLE = {
    "node": "gpu-017",
    "time": "2025-03-01T04:00:00Z",
    "samples": 960,
    "gpus_seen": 8,
    "gpu_temp_mean_c": 58.5,
    "gpu_temp_max_c": 71.0,
    "devices": {"gpu:3": {"gpu_temp_c": [52, 71, 60.8, 66, 41]}, "nic:mlx5_0/1": {"symbol_error": [7, 9, 7.2, 9, 2]}},
}
_COLUMNS = tuple(f.name for f in fields(Rollup) if f.name not in ("node", "time", "samples", "gpus_seen", "devices"))
# A control character stands in no name; PostgreSQL's text cannot hold the first of them.
_NAME = re.compile(rf"[^\x00-\x1f\x7f]{{1,{MAX_DEVICE_NAME}}}")
_VALUES = 5  # min, max, mean, last, changes
# Beyond it no column of PostgreSQL takes a count.
_MAX_COUNT = 2**31 - 1


@router.post(
    "/telemetry",
    operation_id="post_telemetry",
    summary="Take telemetry roll-ups",
    responses=answer(BatchResultJson),
    openapi_extra=records_body(_EXAMPLE, "One node over one hour each; null = nobody measured it."),
)
def post_telemetry(caller: Ingester, server: Server, body: Body) -> Response:
    """Store roll-ups. What a later one of the same node and hour tells replaces what was there of it; the rest stays.

    `devices` holds of each device and measure its minimum, maximum, mean, last value, and how often it changed.
    """
    return reply(send_body(caller, server, body).result())


def send_body(caller: Caller, server: State, body: bytes) -> JointBatch:
    """Read the roll-ups of a body and send them to the store."""
    # Clocks are wrong: an hour of 2999 would stay the newest of the whole store.
    latest = max(server.clock(), datetime.now(UTC)) + MAX_AHEAD
    rollups, rejected = sift(records(body), lambda value: own_rollup(caller, read_rollup(value, latest)))
    caller.count(rollup.node for rollup in rollups)
    return send_rollups(server, rollups, rejected)


def own_rollup(caller: Caller, rollup: Rollup) -> Rollup:
    """The roll-up, of its node by the name that the inventory has.

    Raises:
        RecordError: its node is no node's name, or another's than the caller speaks for; it is too old for the caller.
    """
    node = own_node(caller, rollup.node)
    check_age(caller, rollup.time)
    return rollup if node == rollup.node else replace(rollup, node=node)


def read_rollup(value: Any, latest: datetime) -> Rollup:
    """The roll-up of a JSON object, of no later than a moment.

    Raises:
        RecordError: a field is missing, unknown or of the wrong type.
    """
    if not isinstance(value, dict):
        raise RecordError(f"a record is a JSON object, not {type(value).__name__}")
    node, time = value.get("node"), value.get("time")
    if not isinstance(node, str) or not isinstance(time, str):
        raise RecordError("'node' and 'time' must be strings")
    check_name("node", node)
    moment = parse_time(time)
    check_time("time", moment)
    if moment > latest:
        raise RecordError("'time' lies in the future: set the node's clock")
    columns = {name: _number(name, value.get(name)) for name in _COLUMNS}
    samples, gpus_seen = _count(value, "samples"), _count(value, "gpus_seen")
    rollup = Rollup(node, hour_of(moment), samples, gpus_seen, devices=_devices(value.get("devices")))
    return replace(rollup, **columns)  # type: ignore[arg-type]  # floats


def _count(record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise RecordError(f"{name!r} must be a count")
    return value


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise RecordError(f"{name!r} must be a number or null")
    low, high = sensor_range(name)
    if not low <= value <= high:
        raise RecordError(f"{name!r} is {value:g}: no sensor measures that; give {low:g} to {high:g}, or null")
    return float(value)


def _devices(value: Any) -> Mapping[str, Mapping[str, Sequence[float | None]]] | None:
    """The measures of single devices, as they came; None where there are none.

    Raises:
        RecordError: it is no object of objects of lists, or larger than a roll-up may be.
    """
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(measures, dict) for measures in value.values()):
        raise RecordError("'devices' must be an object of devices, each an object of measures, or null")
    if len(value) > MAX_DEVICES:
        raise RecordError(f"'devices' names {len(value)} devices: {MAX_DEVICES} are the most")
    if (count := sum(map(len, value.values()))) > MAX_MEASURES:
        raise RecordError(f"'devices' holds {count} measures: {MAX_MEASURES} are the most")
    for device, measures in value.items():
        for name in (device, *measures):
            if not _NAME.fullmatch(name):
                raise RecordError(
                    f"'devices' holds the name {name[:80]!r}: use 1 to {MAX_DEVICE_NAME} printable characters"
                )
        for name, values in measures.items():
            if not isinstance(values, list) or len(values) != _VALUES or not all(map(_fits, values)):
                raise RecordError(
                    f"'devices' holds {device} {name}: give [min, max, mean, last, changes], numbers or null"
                )
    return value or None


def _fits(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) < BEYOND)

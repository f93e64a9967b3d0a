"""`POST /telemetry`: roll-ups of a node and hour. Raw samples stay with the sender."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Response

from api.auth import Ingester
from api.body import Body, records
from api.ingest import check_name, check_time, sift, take_rollups
from api.reply import reply
from api.routes.bodies import records_body
from api.state import Server
from api.wire import TakenOut
from store.append import MAX_AHEAD
from store.event import RecordError, parse_time
from store.telemetry import Rollup, hour_of

router = APIRouter(tags=["telemetry"])

_EXAMPLE = {
    "node": "gpu-017",
    "time": "2025-03-01T04:00:00Z",
    "samples": 960,
    "gpus_seen": 8,
    "gpu_temp_mean_c": 58.5,
    "gpu_temp_max_c": 71.0,
}
_MEASURES = tuple(f.name for f in fields(Rollup) if f.name not in ("node", "time", "samples", "gpus_seen"))
# Beyond it no column of PostgreSQL takes a count.
_MAX_COUNT = 2**31 - 1


@router.post(
    "/telemetry",
    operation_id="post_telemetry",
    summary="Take telemetry roll-ups",
    response_model=TakenOut,
    openapi_extra=records_body(_EXAMPLE, "One node over one hour each; null = nobody measured it."),
)
def post_telemetry(_who: Ingester, server: Server, body: Body) -> Response:
    """Store roll-ups; a later one of the same node and hour replaces the earlier one."""
    # Clocks are wrong: an hour of 2999 would stay the newest of the whole store.
    latest = max(server.clock(), datetime.now(UTC)) + MAX_AHEAD
    rollups, rejected = sift(records(body), lambda value: read_rollup(value, latest))
    return reply(take_rollups(server, rollups, rejected))


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
    measures = {name: _measure(name, value.get(name)) for name in _MEASURES}
    samples, gpus_seen = _count(value, "samples"), _count(value, "gpus_seen")
    return replace(Rollup(node, hour_of(moment), samples, gpus_seen), **measures)  # type: ignore[arg-type]  # floats


def _count(record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise RecordError(f"{name!r} must be a count")
    return value


def _measure(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(f"{name!r} must be a number or null")
    return float(value)

"""A heartbeat as a sidecar sends it, checked: `{"node": ..., "time": ..., "sources": [...], "lost": {...}, ...}`."""

from datetime import datetime
from typing import Any

import orjson

from api.intake.records import check_name, check_time
from store.nodes.sidecars import SidecarReport
from store.records.event import RecordError, parse_time

MOST_INTERVAL_S = 86_400.0
MOST_BYTES = 64 * 1024
_MOST_SOURCES = 200
_MOST_TEXT = 1000
_LOSSES = ("records", "events", "rollups", "damaged_bytes")


def read_heartbeat(value: Any, received: datetime) -> SidecarReport:
    """The report of a wire object. Keys that are not known are kept: a newer sidecar may say more.

    Raises:
        RecordError: it is no object, or a field does not fit.
    """
    if not isinstance(value, dict):
        raise RecordError(f"a record is a JSON object, not {type(value).__name__}")
    node, version = _text(value, "node"), _text(value, "version")
    check_name("node", node)
    moments = {}
    for name in ("time", "started"):
        moments[name] = parse_time(_text(value, name))
        check_time(name, moments[name])
    interval_s = value.get("interval_s")
    if interval_s is None or not _number(interval_s) or not 0 < interval_s <= MOST_INTERVAL_S:
        raise RecordError(f"'interval_s' must be a number of seconds up to {MOST_INTERVAL_S:.0f}")
    if len(orjson.dumps(value)) > MOST_BYTES:
        raise RecordError(f"a heartbeat has {MOST_BYTES} bytes at most")
    troubled = _is_troubled(value)
    return SidecarReport(node, received, moments["time"], version, moments["started"], troubled, value)


def _is_troubled(value: dict[str, Any]) -> bool:
    """Whether a source is down or blocked, or anything was lost or refused."""
    sources, lost = value.get("sources"), value.get("lost")
    if not isinstance(sources, list) or len(sources) > _MOST_SOURCES:
        raise RecordError(f"'sources' must be a list of at most {_MOST_SOURCES}")
    if not isinstance(lost, dict):
        raise RecordError("'lost' must be an object of counts")
    counts = [lost.get(name, 0) for name in _LOSSES] + [value.get("rejected", 0)]
    stopped = False
    for source in sources:
        if not isinstance(source, dict) or not isinstance(source.get("source"), str):
            raise RecordError("each of 'sources' must be an object with 'source'")
        counts.append(source.get("lost", 0))
        stopped = stopped or source.get("up") is not True or source.get("blocked") is True
    if not all(_number(count) and count >= 0 for count in counts):
        raise RecordError("what was lost or rejected must be counts, not negative")
    return stopped or any(counts)


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= _MOST_TEXT:
        raise RecordError(f"{name!r} must be a text of 1 to {_MOST_TEXT} characters")
    return text


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

"""A heartbeat as a sidecar sends it, checked: `wire.sidecars.HeartbeatJson`, and whether the sidecar is in trouble."""

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import orjson

from api.edge.auth import Caller
from api.intake.entries import check_name, own_node
from store.nodes.sidecars import SidecarReport
from store.records.event import RecordError, check_time
from wire.sidecars import HeartbeatJson

MOST_BYTES = 64 * 1024
# Objects and lists within each other: a sidecar's report has three. It is written, and answered, within a list of all,
# and what writes JSON goes 254 deep.
_MOST_LEVELS = 32
_PLACE = re.compile(r" - at `\$(\.(\w+).*)?`$")


def read_heartbeat(value: Any, received: datetime) -> SidecarReport:
    """The report of a JSON object. Keys that are not known stay in it: a newer sidecar may say more.

    Raises:
        RecordError: it is no object, or a field does not fit.
    """
    if not isinstance(value, dict):
        raise RecordError(f"a record is a JSON object, not {type(value).__name__}")
    try:
        beat = msgspec.convert(value, HeartbeatJson)
    except msgspec.ValidationError as error:
        raise RecordError(_PLACE.sub("", f"{_field(str(error))}{error}")) from error
    check_name("node", beat.node)
    for name in ("time", "started"):
        check_time(name, getattr(beat, name))
    if _is_deep(value, _MOST_LEVELS):
        raise RecordError("a heartbeat is nested too deeply: flatten it")
    size = len(orjson.dumps(value))
    if size > MOST_BYTES:
        raise RecordError(f"a heartbeat has {MOST_BYTES} bytes at most")
    return SidecarReport(beat.node, received, beat.time, beat.version, beat.started, _is_troubled(beat), value)


def own_report(caller: Caller, report: SidecarReport) -> SidecarReport:
    """The report, of its node by the name that the inventory has.

    Raises:
        RecordError: its node is no node's name, or another's than the caller speaks for.
    """
    node = own_node(caller, report.node)
    return report if node == report.node else replace(report, node=node, report={**report.report, "node": node})


def _is_deep(value: Any, levels: int) -> bool:
    """Whether more objects and lists than so many are within each other."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(_is_deep(one, levels - 1) for one in inner))


def _is_troubled(beat: HeartbeatJson) -> bool:
    """Whether a source is down or blocked, or anything was lost or refused."""
    stopped = any(source.lost or source.blocked or not source.up for source in beat.sources)
    return stopped or beat.lost.is_any or beat.rejected > 0


def _field(text: str) -> str:
    """The field that an error of msgspec is about, before its words."""
    place = _PLACE.search(text)
    return f"{place[2]!r}: " if place and place[2] else ""

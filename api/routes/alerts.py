"""`POST /alerts`: what Alertmanager's webhook (version 4) sends, as events of source `alertmanager`."""

import hashlib
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from api.auth import Ingester
from api.body import Body, Entry, records
from api.ingest import Rejected, check_name, check_time, sift, take_events
from api.problem import Problem
from api.reply import reply
from api.state import Server
from api.wire import TakenOut
from store.event import CAUSES, Attribute, Cause, Device, Event, RecordError, Severity, parse_time

router = APIRouter(tags=["events"])

# Prometheus' customary severities; a confirmed fault (`fatal`) is never taken from an alert.
_SEVERITY: Mapping[str, Severity] = {
    "critical": "error",
    "page": "error",
    "error": "error",
    "info": "info",
    "none": "info",
}
_NODE_LABELS = ("node", "Hostname", "hostname", "host", "nodename", "instance")
_CAUSES: Mapping[str, Cause] = dict(zip(CAUSES, CAUSES, strict=True))
_MAX_LABELS = 64
_EXAMPLE = {
    "version": "4",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "GpuHot", "node": "gpu-017", "gpu": "3", "severity": "warning"},
            "annotations": {"summary": "gpu-017 GPU 3 is at 91 C"},
            "startsAt": "2025-03-01T04:05:06.789Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": "74d5f021fc5cfa6f",
        }
    ],
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}, "example": _EXAMPLE}},
    }
}


@router.post(
    "/alerts",
    operation_id="post_alerts",
    summary="Take alerts of Alertmanager",
    response_model=TakenOut,
    openapi_extra=_BODY,
)
def post_alerts(_who: Ingester, server: Server, body: Body) -> Response:
    """Take a notification; the same alert again changes nothing. `line` of a rejected one is its place in `alerts`."""
    events: list[Event] = []
    rejected: list[Rejected] = []
    for entry in records(body):
        alerts = entry.value.get("alerts") if isinstance(entry.value, dict) else None
        if not isinstance(alerts, list):
            raise Problem(422, "this is no notification of Alertmanager (version 4): 'alerts' is missing")
        good, bad = sift(records_of(alerts), read_alert)
        events += good
        rejected += bad
    return reply(take_events(server, events, rejected, "alerts"))


def records_of(alerts: list[Any]) -> list[Entry]:
    """The alerts with their places."""
    return [Entry(place, alert) for place, alert in enumerate(alerts, start=1)]


def read_alert(value: Any) -> Event:
    """The event of one alert; its id comes from fingerprint, start and status.

    Raises:
        RecordError: it lacks labels or a start.
    """
    labels = _texts(value, "labels")
    annotations = _texts(value, "annotations")
    starts, fingerprint = value.get("startsAt"), value.get("fingerprint")
    name = labels.get("alertname")
    if not name or not isinstance(starts, str) or not isinstance(fingerprint, str):
        raise RecordError("an alert needs 'labels.alertname', 'startsAt' and 'fingerprint'")
    began = parse_time(starts)
    check_time("startsAt", began)
    resolved = value.get("status") == "resolved"
    ended = value.get("endsAt")
    time = parse_time(ended) if resolved and isinstance(ended, str) else began
    check_time("endsAt", time)
    node = _node(labels)
    check_name("node", node)
    content = f"{fingerprint} {starts} {'resolved' if resolved else 'firing'}"
    return Event(
        time=time,
        node=node,
        source="alertmanager",
        kind="alert_resolved" if resolved else "alert",
        code=_integer(labels.get("xid")),
        severity="info" if resolved else _SEVERITY.get(labels.get("severity", ""), "warning"),
        cause=_CAUSES.get(labels.get("cause", ""), "unknown"),
        action="none" if resolved else "watch",
        device=_device(labels),
        message=(annotations.get("summary") or annotations.get("description") or name)[:1000],
        attributes=_attributes(labels, fingerprint),
        id=hashlib.blake2b(content.encode(), digest_size=16).hexdigest(),
    )


def _texts(value: Any, key: str) -> dict[str, str]:
    found = value.get(key) if isinstance(value, dict) else None
    if found is None and isinstance(value, dict):
        return {}
    if not isinstance(found, dict) or len(found) > _MAX_LABELS:
        raise RecordError(f"{key!r} must be an object of at most {_MAX_LABELS} texts")
    return {str(name): str(text) for name, text in found.items()}


def _node(labels: Mapping[str, str]) -> str | None:
    """The host that an alert speaks of; an `instance` without its port."""
    for label in _NODE_LABELS:
        if labels.get(label):
            return labels[label].rsplit(":", 1)[0] if label == "instance" else labels[label]
    return None


def _device(labels: Mapping[str, str]) -> Device:
    index, uuid = _integer(labels.get("gpu")), labels.get("UUID")
    return Device("gpu", index=index, uuid=uuid) if index is not None or uuid else Device()


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _attributes(labels: Mapping[str, str], fingerprint: str) -> dict[str, Attribute]:
    return {"fingerprint": fingerprint, **{name: text for name, text in labels.items() if name != "run"}}

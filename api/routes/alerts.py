"""`POST /alerts`: what Alertmanager's webhook (version 4) sends, as events of source `alertmanager`."""

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from api.answers.reply import reply
from api.edge.auth import FleetIngester
from api.edge.body import Body
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.intake.entries import BodyEntry, check_name, own_event, records, sift
from api.intake.records import take_events
from api.server.state import Server, State
from parsers.formats.alertmanager import alert_event, is_host
from store.nodes.known_names import KnownNames
from store.records.event import Event, RecordError, check_time, parse_time
from wire.events import BatchResultJson

router = APIRouter(prefix=PREFIX, tags=["events"])
_log = logging.getLogger(__name__)

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
    responses=answer(BatchResultJson),
    openapi_extra=_BODY,
)
def post_alerts(caller: FleetIngester, server: Server, body: Body) -> Response:
    """Take a notification; the same alert again changes nothing. `line` of a rejected one is its place in `alerts`."""
    truncated: list[int] = []
    alerts = alerts_of(records(body), truncated)
    events, rejected = sift(alerts, lambda value: own_event(caller, read_alert(value, caller.names)))
    _note_truncated(server, sum(truncated))
    return reply(take_events(server, events, rejected, "alerts"))


def alerts_of(notifications: Iterable[BodyEntry], truncated: list[int]) -> Iterator[BodyEntry]:
    """The alerts of notifications with their places; how many each left out is added to `truncated`."""
    for entry in notifications:
        alerts = entry.value.get("alerts") if isinstance(entry.value, dict) else None
        if not isinstance(alerts, list):
            raise Problem(422, "this is no notification of Alertmanager (version 4): 'alerts' is missing")
        count = entry.value.get("truncatedAlerts")
        if isinstance(count, int):
            truncated.append(max(0, count))
        for place, alert in enumerate(alerts, start=1):
            yield BodyEntry(place, alert)


def _note_truncated(server: State, count: int) -> None:
    """Alertmanager leaves out what is beyond its `max_alerts`: nobody else will tell of it."""
    if count:
        server.metrics.rejected.labels("alerts").inc(count)
        _log.warning("Alertmanager left out %d alerts of a notification: raise max_alerts of its webhook", count)


def read_alert(value: Any, names: KnownNames) -> Event:
    """The event of one alert; its id comes from fingerprint, start and status.

    Raises:
        RecordError: it lacks labels or a start, or its times cannot be.
    """
    event = alert_event(value, partial(_is_node, names))
    check_time("startsAt", parse_time(value["startsAt"]))
    if event.time is not None:
        check_time("endsAt", event.time)
    check_name("node", event.node)
    return event


def _is_node(names: KnownNames, host: str) -> bool:
    """Whether the host of an alert's `instance` is a node: the inventory knows it, or there is none."""
    try:
        name = names.canonical(host)
    except RecordError:
        return False
    return name in names.known if names.known else is_host(host)

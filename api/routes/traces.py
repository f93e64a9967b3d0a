"""`POST /traces`: OpenTelemetry spans as OTLP/HTTP exporters post them, in JSON."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from api.answers.paging import Name
from api.answers.reply import reply
from api.edge.auth import Ingester
from api.edge.body import Body
from api.edge.openapi import answer
from api.edge.problem import Problem
from api.intake.entries import Rejected, own_events
from api.intake.logs import fits
from api.intake.records import take_events
from api.server.state import Server
from parsers.registry import PARSERS
from parsers.text.parser import Context, guarded
from store.records.event import Event
from wire.events import SpansResultJson

router = APIRouter(tags=["events"])

_EXAMPLE = json.loads(PARSERS["otel"].sample)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "An ExportTraceServiceRequest in OTLP's JSON.",
        "content": {"application/json": {"schema": {"type": "object"}, "example": _EXAMPLE}},
    }
}


@router.post(
    "/traces",
    operation_id="post_traces",
    summary="Take spans of training programs",
    responses=answer(SpansResultJson),
    openapi_extra=_BODY,
)
def post_traces(
    caller: Ingester,
    server: Server,
    request: Request,
    body: Body,
    run: Annotated[Name | None, Query(description="The training run, whatever the spans say.")] = None,
) -> Response:
    """Decode spans and take their events; the answer is OTLP's. Spans that say nothing of training are passed over."""
    if "protobuf" in request.headers.get("content-type", ""):
        raise Problem(415, "spans come in JSON here: set `encoding: json` in the collector's otlphttp exporter")
    rejects: list[Rejected] = []
    events = own_events(caller, _decoded(body, run, rejects), rejects)
    taken = take_events(server, events, rejects, "traces")
    rejected = len(taken.rejected)
    partial_success = {"rejectedSpans": str(rejected), "errorMessage": taken.rejected[0].detail} if rejected else {}
    return reply({"partialSuccess": partial_success})


def _decoded(body: bytes, run: str | None, rejects: list[Rejected]) -> Iterator[Event]:
    """The events of a request; a line may be of any length here."""
    parser = PARSERS["otel"].make(Context(run=run))
    text = body.decode("utf-8", errors="replace")
    for step in (partial(parser.feed, text, 1), parser.flush):
        found = guarded(step, 1, lambda line, error: rejects.append(Rejected(line, str(error))))
        yield from (event for event in found if fits(event))

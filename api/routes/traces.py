"""`POST /traces`: OpenTelemetry spans as OTLP/HTTP exporters post them."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from api.answers.paging import Name
from api.edge.auth import Ingester
from api.edge.body import Body
from api.edge.openapi import PREFIX, answer
from api.edge.work_budget import check_containers, limited
from api.intake.entries import Rejected, own_events
from api.intake.logs import fits
from api.intake.otlp import PROTOBUF, is_protobuf, spans_answer, spans_as_json
from api.intake.records import take_events
from api.server.state import Server
from parsers.registry import PARSERS
from parsers.text.parser import Context, guarded
from store.events.event_json import check_size
from store.records.event import Event, RecordError
from wire.events import SpansResultJson

router = APIRouter(prefix=PREFIX, tags=["events"])

_EXAMPLE = json.loads(PARSERS["otel"].sample)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "An ExportTraceServiceRequest of OTLP, in protobuf or JSON.",
        "content": {
            "application/json": {"schema": {"type": "object"}, "example": _EXAMPLE},
            PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
        },
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
    in_protobuf = is_protobuf(request)
    rejects: list[Rejected] = []
    events = own_events(caller, _decoded(spans_as_json(body, rejects) if in_protobuf else body, run, rejects), rejects)
    take_events(server, events, rejects, "traces")
    return spans_answer(rejects, in_protobuf)


def _decoded(body: bytes, run: str | None, rejects: list[Rejected]) -> Iterator[Event]:
    """The events of a request; a line may be of any length here.

    Raises:
        Problem: 413, it has too many objects or events, or takes too much work; 503, nobody waits for it.
    """
    check_containers(body)
    parser = PARSERS["otel"].make(Context(run=run))
    text = body.decode("utf-8", errors="replace")
    for step in (lambda: limited(parser.feed(text, 1)), parser.flush):
        for event in guarded(step, 1, lambda line, error: rejects.append(Rejected(line, str(error)))):
            try:
                check_size(event)
            except RecordError as error:
                rejects.append(Rejected(1, str(error)))
                continue
            if fits(event):
                yield event

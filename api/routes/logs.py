"""`POST /logs`: raw lines as log shippers send them; decoded here."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from api.answers.paging import Name
from api.answers.reply import reply
from api.edge.auth import Ingester
from api.edge.body import Body
from api.edge.openapi import answer
from api.edge.problem import Problem
from api.intake.entries import own_events
from api.intake.logs import LogContext, LogDecoder
from api.intake.records import take_events
from api.server.state import Server
from parsers.registry import PARSERS
from wire.events import BatchResultJson

router = APIRouter(tags=["events"])

_LINE = "2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus."
_RECORD = {"date": 1740801906.789, "host": "gpu-017", "log": "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x"}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Plain lines, or the JSON of Fluent Bit, rsyslog or journald.",
        "content": {
            "text/plain": {"schema": {"type": "string"}, "example": _LINE},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}, "example": [_RECORD]},
            "application/x-ndjson": {"schema": {"type": "string"}},
        },
    }
}


@router.post(
    "/logs",
    operation_id="post_logs",
    summary="Take raw log lines",
    responses=answer(BatchResultJson),
    openapi_extra=_BODY,
)
def post_logs(
    caller: Ingester,
    server: Server,
    body: Body,
    format: Annotated[Name | Literal["auto"], Query(description="A format's name; `auto` finds out.")] = "auto",  # noqa: A002
    node: Annotated[Name | None, Query(description="The host, where lines name none.")] = None,
    run: Annotated[Name | None, Query(description="The training run, for a training log.")] = None,
) -> Response:
    """Decode lines and take their events. Lines that say nothing of a fault are passed over in silence."""
    known = sorted(name for name, entry in PARSERS.items() if entry.shape != "page")
    if format not in ("auto", *known):
        raise Problem(422, f"no log format {format!r}: use auto or one of {', '.join(known)}")
    decoder = LogDecoder(LogContext(None if format == "auto" else format, node, run), server.clock(), server.rules)
    events = own_events(caller, decoder.decode(body), decoder.rejected)
    return reply(take_events(server, events, decoder.rejected, "logs"))

"""`POST /logs`: raw lines as log shippers and OTLP/HTTP exporters send them; decoded here."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from api.answers.paging import Name
from api.answers.reply import reply
from api.edge.auth import Ingester
from api.edge.body import Body
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.intake.entries import own_events
from api.intake.logs import LogContext, LogDecoder
from api.intake.otlp import PROTOBUF, is_protobuf, log_entries, logs_answer
from api.intake.records import take_events
from api.server.state import Server
from parsers.registry import PARSERS
from store.records.event_sources import Trust
from wire.events import LogsResultJson

router = APIRouter(prefix=PREFIX, tags=["events"])


class LogQuery(BaseModel):
    """What the sender says of all lines."""

    format: Annotated[Name | Literal["auto"], Field(description="A format's name; `auto` finds out.")] = "auto"
    node: Annotated[Name | None, Field(description="The host, where lines name none.")] = None
    run: Annotated[Name | None, Field(description="The training run, for a training log.")] = None
    trust: Annotated[
        Trust | None,
        Field(description="Who can write the lines. `user`: any job's user can; they tell of training alone."),
    ] = None

    def context(self) -> LogContext:
        """The same for the decoder.

        Raises:
            Problem: 422: no such format.
        """
        known = sorted(name for name, entry in PARSERS.items() if entry.shape != "page")
        if self.format not in ("auto", *known):
            raise Problem(422, f"no log format {self.format!r}: use auto or one of {', '.join(known)}")
        return LogContext(None if self.format == "auto" else self.format, self.node, self.run, self.trust)


_LINE = "2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus."
_RECORD = {"date": 1740801906.789, "host": "gpu-017", "log": "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x"}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Plain lines, the JSON of Fluent Bit, rsyslog or journald, or OTLP's ExportLogsServiceRequest.",
        "content": {
            "text/plain": {"schema": {"type": "string"}, "example": _LINE},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}, "example": [_RECORD]},
            "application/x-ndjson": {"schema": {"type": "string"}},
            PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post(
    "/logs",
    operation_id="post_logs",
    summary="Take raw log lines",
    responses=answer(LogsResultJson),
    openapi_extra=_BODY,
)
def post_logs(
    caller: Ingester, server: Server, request: Request, body: Body, query: Annotated[LogQuery, Query()]
) -> Response:
    """Decode lines and take their events. Lines that say nothing of a fault are passed over in silence.

    A request of OTLP has OTLP's answer.
    """
    decoder = LogDecoder(query.context(), server.clock(), server.rules)
    in_protobuf = is_protobuf(request)
    found = decoder.decode_records(log_entries(body)) if in_protobuf else decoder.decode(body)
    events = own_events(caller, found, decoder.rejected)
    for reason, lines in decoder.refused.items():
        server.metrics.denied.labels("logs", reason).inc(lines)
    taken = take_events(server, events, decoder.rejected, "logs")
    if in_protobuf or body.lstrip().startswith(b'{"resourceLogs"'):
        return logs_answer(taken, decoder.rejected, in_protobuf)
    return reply(taken)

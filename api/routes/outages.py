"""`POST /outages`: nodes out of service, as a scheduler or a ticket system tells it."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Response

from api.answers.reply import reply
from api.edge.auth import Caller, FleetIngester
from api.edge.body import Body, records_body
from api.edge.openapi import PREFIX, answer
from api.intake.entries import check_name, own_node, records, sift
from api.intake.records import take_outages
from api.server.state import Server
from store.records.event import RecordError, check_time, parse_time
from store.records.outage import SHIPPED_REASONS, Outage, OutageReasons
from wire.events import BatchResultJson

router = APIRouter(prefix=PREFIX, tags=["outages"])

# A reason is a sentence; it is searched for the words of every cause.
_MOST_CHARS = 4096
_EXAMPLE = {
    "node": "gpu-017",
    "start": "2025-03-01T04:05:06Z",
    "end": None,
    "state": "DOWN",
    "reason": "Xid 79",
    "user": "root",
}


@router.post(
    "/outages",
    operation_id="post_outages",
    summary="Take outages",
    responses=answer(BatchResultJson),
    openapi_extra=records_body(_EXAMPLE, "One outage each; `end` is null while it lasts."),
)
def post_outages(caller: FleetIngester, server: Server, body: Body) -> Response:
    """Store outages; a later record of the same node and start closes or corrects the earlier one."""
    reasons = server.settings.outage_reasons
    outages, rejected = sift(records(body), lambda value: _own(caller, read_outage(value, reasons)))
    return reply(take_outages(server, outages, rejected))


def _own(caller: Caller, outage: Outage) -> Outage:
    node = own_node(caller, outage.node)
    return outage if node == outage.node else replace(outage, node=node)


def read_outage(value: Any, reasons: OutageReasons = SHIPPED_REASONS) -> Outage:
    """The outage of a JSON object; whether it was planned, and its cause, follow from state and reason.

    Raises:
        RecordError: a field is missing or of the wrong type, or the end lies before the start.
    """
    if not isinstance(value, dict):
        raise RecordError(f"a record is a JSON object, not {type(value).__name__}")
    texts = {name: _text(value, name) for name in ("node", "start", "end", "state", "reason", "user")}
    node, start = texts["node"], texts["start"]
    if not node or not start:
        raise RecordError("an outage needs 'node' and 'start'")
    check_name("node", node)
    began = parse_time(start)
    ended = parse_time(texts["end"]) if texts["end"] else None
    check_time("start", began)
    if ended is not None:
        check_time("end", ended)
        if ended < began:
            raise RecordError("'end' lies before 'start'")
    state, reason = texts["state"] or "", texts["reason"] or ""
    planned, cause = reasons.judge(state, reason)
    return Outage(node, began, ended, state, reason, texts["user"], planned, cause)


def _text(value: dict[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise RecordError(f"{name!r} must be a string or null")
    if text is not None and len(text) > _MOST_CHARS:
        raise RecordError(f"{name!r} is over {_MOST_CHARS} characters: cut it")
    return text

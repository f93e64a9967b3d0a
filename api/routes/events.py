"""`POST /events` and `GET /events`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import with_meaning
from api.answers.paging import MAX_LIMIT, CursorText, Moment, Name, decode, page_of
from api.answers.reply import listing, reply
from api.edge.auth import Caller, Ingester, Reader
from api.edge.body import Body, records_body
from api.edge.openapi import PREFIX, answer
from api.intake.entries import events_of
from api.intake.records import JointBatch, send_events
from api.server.state import Server, State
from store.events.event_pages import EventWindow, event_page
from store.records.event import Device, Event, to_wire
from wire.events import BatchResultJson, EventJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["events"])

_EXAMPLE = to_wire(
    Event(
        time=None,
        node="gpu-017",
        source="kernel",
        kind="xid",
        code=79,
        severity="fatal",
        cause="hardware",
        action="reboot_node",
        device=Device("gpu", "0000:0f:00.0"),
        message="GPU has fallen off the bus.",
        attributes={"pid": 1234, "process": "python"},
        line=1,
    )
) | {"time": "2025-03-01T04:05:06.789000Z"}


@router.post(
    "/events",
    operation_id="post_events",
    summary="Take events",
    responses=answer(BatchResultJson),
    openapi_extra=records_body(_EXAMPLE, "Records of `foreshock parse`, with `id` where the sender made one."),
)
def post_events(caller: Ingester, server: Server, body: Body) -> Response:
    """Append events; sending one again changes nothing. A bad record is named and leaves the others alone."""
    return reply(send_body(caller, server, body).result())


def send_body(caller: Caller, server: State, body: bytes) -> JointBatch:
    """Read the events of a body and send them to the store."""
    events, rejected = events_of(body, caller)
    return send_events(server, events, rejected, "events")


class EventQuery(BaseModel):
    """Which events."""

    node: Name | None = None
    kind: Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/events", operation_id="get_events", summary="List events", responses=answer(Page[EventJson]))
def get_events(_who: Reader, server: Server, query: Annotated[EventQuery, Query()]) -> Response:
    """Events, newest last. With `since` from there on; without, the newest ones, and the cursor leads to older ones."""
    cursor = decode(query.cursor) if query.cursor else None
    newest = cursor.backwards if cursor else query.since is None
    mark = (cursor.time, cursor.id) if cursor else None
    window = EventWindow(query.since, query.until, query.node, query.kind, after=mark)
    # Each stretch of days by itself: the locks on hundreds of tables would add up in one transaction.
    with server.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        rows = event_page(connection, window, query.limit + 1, newest, server.clock())
    items, following = page_of(rows, query.limit, newest, "time")
    return listing([_item(row) for row in items], following)


def _item(row: dict[str, Any]) -> dict[str, Any]:
    if row["file"] is None:
        del row["file"]
    return with_meaning(row)

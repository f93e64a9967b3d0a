"""`GET /incidents`: the faults, coalesced from events."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import with_meaning
from api.answers.paging import MAX_LIMIT, CursorText, Moment, Name, decode, page_of
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import answer
from api.server.state import Server
from store.events.event_pages import EventWindow, incident_page
from store.records.event import Severity
from wire.events import IncidentJson
from wire.message import Page

router = APIRouter(tags=["incidents"])


class IncidentQuery(BaseModel):
    """Which incidents: those that showed within the window."""

    node: Name | None = None
    severity: Severity | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/incidents", operation_id="get_incidents", summary="List incidents", responses=answer(Page[IncidentJson]))
def get_incidents(_who: Reader, server: Server, query: Annotated[IncidentQuery, Query()]) -> Response:
    """Incidents by their start, newest last. Without `since` the newest, and the cursor leads to older ones."""
    cursor = decode(query.cursor) if query.cursor else None
    newest = cursor.backwards if cursor else query.since is None
    mark = (cursor.time, cursor.id) if cursor else None
    window = EventWindow(query.since, query.until, query.node, after=mark)
    with server.engine.connect() as connection:
        rows = incident_page(connection, window, query.severity, query.limit + 1, newest)
    items, following = page_of(rows, query.limit, newest, "start")
    return listing([with_meaning(row | {"nodes": row["nodes"] or []}) for row in items], following)

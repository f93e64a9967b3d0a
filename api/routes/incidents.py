"""`GET /incidents`, `/incidents/{id}`: the faults, coalesced from events, with what people have made of them."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import with_meaning
from api.answers.paging import MAX_LIMIT, CursorText, Moment, Name, decode, page_of
from api.answers.remedies import with_remedies, with_verdicts
from api.answers.reply import listing, reply, thread_json
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from store.events.event_pages import INCIDENT_COLUMNS, EventWindow, incident_page, with_devices
from store.events.incident_thread import incident_known_by, incident_subject, lives_of
from store.records.event import Severity
from store.records.incident import IncidentLife
from store.verdicts.gpu_index import with_indices
from wire.events import IncidentJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["incidents"])
IncidentId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


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
        page, following = page_of(rows, query.limit, newest, "start")
        now = server.clock()
        items = with_remedies(connection, with_indices(connection, page), now)
        lives = lives_of(connection, [incident_subject(row) for row in items], now)
    return listing([_item(row, lives[row["id"]][0]) for row in items], following)


@router.get(
    "/incidents/{incident}",
    operation_id="get_incident",
    summary="Show an incident",
    responses=answer(IncidentJson) | {404: {"description": "No such incident."}},
)
def get_incident(_who: Reader, server: Server, incident: IncidentId) -> Response:
    """One incident with its thread and the verdicts that put it down to a cause.

    It is found by the id that it had before earlier events came, too: by that of any event of its node within its time.
    """
    with server.engine.connect() as connection:
        row = incident_known_by(connection, incident)
        if row is None:
            raise Problem(404, f"there is no incident {incident[:80]!r}")
        life, thread = lives_of(connection, [incident_subject(row)], server.clock())[row["id"]]
        (whole,) = with_indices(connection, with_devices([{name: row[name] for name in (*INCIDENT_COLUMNS, "heads")}]))
        decided, verdicts = with_verdicts(connection, whole, server.clock())
    shown = _item(decided, life)
    return reply(shown | {"thread": thread_json(thread), "verdicts": verdicts})


def _item(row: dict[str, Any], life: IncidentLife) -> dict[str, Any]:
    return with_meaning(row | {"nodes": row["nodes"] or [], "life": asdict(life)})

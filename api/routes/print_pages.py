"""`GET /print/incidents/{id}`, `/print/week`: an incident, and the last seven days, as pages of HTML to print."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from api.answers.jobs_hit import jobs_hit
from api.answers.paging import MAX_LIMIT, Moment
from api.answers.reply import content_of
from api.edge.auth import Caller, Reader
from api.edge.openapi import PREFIX
from api.pages.document import document
from api.pages.incident import MOST_LINES, IncidentFile, incident_sections, incident_title
from api.pages.phone import GRAVE
from api.pages.week import MOST_ROWS, WeekFile, week_sections
from api.routes.events import EventQuery, get_events
from api.routes.goodput import CausesQuery, ClusterQuery, get_causes, get_cluster_goodput
from api.routes.hints import HintQuery, get_hints
from api.routes.incidents import IncidentId, IncidentQuery, get_incident, get_incidents
from api.routes.verdicts import get_verdict
from api.server.state import Server, State
from store.runs.losses import day_sums
from wire.events import EventJson, IncidentJson
from wire.goodput import CausesJson, ClusterGoodputJson
from wire.hints import HintJson
from wire.message import Page
from wire.verdicts import VerdictJson

router = APIRouter(prefix=f"{PREFIX}/print", tags=["incidents"])
_MOST_VERDICTS = 4
_AROUND = timedelta(seconds=1)
_HOUR_MS = 3_600_000
# What every healthy node says all the time.
_ROUTINE = frozenset({"iteration", "telemetry", "evaluation", "checkpoint_save_start", "checkpoint_save", "job"})


@router.get(
    "/incidents/{incident}",
    operation_id="print_incident",
    summary="An incident to print",
    response_class=HTMLResponse,
    responses={404: {"description": "No such incident."}},
)
def print_incident(who: Reader, server: Server, incident: IncidentId) -> Response:
    """Its causes with what speaks for and against, its lines, the jobs hit, the hints and what people did."""
    found = content_of(IncidentJson, get_incident(who, server, incident))
    causes = [content_of(VerdictJson, get_verdict(who, server, ident)) for ident in found.verdicts[:_MOST_VERDICTS]]
    with server.engine.connect() as connection:
        jobs = jobs_hit(connection, [found]).get(found.id, ())
    events, hints = (_lines(who, server, found), _hints(who, server, found)) if found.node else ((), ())
    file = IncidentFile(found, server.clock(), causes, events, jobs, hints)
    return document(f"Incident: {incident_title(found)}", incident_sections(file))


def _lines(who: Caller, server: State, found: IncidentJson) -> list[EventJson]:
    """The events of its node within its time, but for the routine ones."""
    query = EventQuery(node=found.node, since=found.start - _AROUND, until=found.end + _AROUND, limit=MOST_LINES)
    events = content_of(Page[EventJson], get_events(who, server, query)).items
    return [one for one in events if one.kind not in _ROUTINE]


def _hints(who: Caller, server: State, found: IncidentJson) -> list[HintJson]:
    """What was asked about its node since it began."""
    hints = content_of(Page[HintJson], get_hints(who, server, HintQuery(node=found.node, limit=MAX_LIMIT))).items
    return [one for one in hints if one.valid_until is None or one.valid_until >= found.start]


class WeekQuery(BaseModel):
    """The end of the week; the last seven days, unless said."""

    until: Moment | None = None


@router.get("/week", operation_id="print_week", summary="The week to print", response_class=HTMLResponse)
def print_week(who: Reader, server: Server, query: Annotated[WeekQuery, Query()]) -> Response:
    """Goodput, interruptions by cause, GPU-hours lost, MTBF and grave incidents of seven days, the last up to now."""
    goodput = content_of(ClusterGoodputJson, get_cluster_goodput(who, server, ClusterQuery(until=query.until)))
    window = (goodput.since, goodput.until)
    causes = content_of(CausesJson, get_causes(who, server, CausesQuery(since=window[0], until=window[1])))
    with server.engine.connect() as connection:
        walls = [(bucket, wall_ms) for _day, bucket, wall_ms, *_gpus in day_sums(connection, *window)]
    running_h = sum(wall_ms for bucket, wall_ms in walls if bucket != "waiting") / _HOUR_MS
    found = _incidents(who, server, window)
    week = WeekFile(goodput, causes, running_h, found[:MOST_ROWS], len(found) > MOST_ROWS)
    return document(f"Foreshock: the week to {goodput.until:%Y-%m-%d}", week_sections(week))


def _incidents(who: Caller, server: State, window: tuple[datetime, datetime]) -> Sequence[IncidentJson]:
    """The newest grave ones that began within the window, one more than the page shows."""
    found: list[IncidentJson] = []
    for severity in GRAVE:
        query = IncidentQuery(severity=severity, until=window[1], limit=MOST_ROWS + 1)
        page = content_of(Page[IncidentJson], get_incidents(who, server, query))
        found += [one for one in page.items if one.start >= window[0]]
    return sorted(found, key=lambda one: one.start, reverse=True)

"""`GET /m`: the verdict and the queue on a phone, as one page of HTML without scripts."""

from datetime import datetime, timedelta
from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from api.answers.jobs_hit import jobs_hit
from api.answers.reply import content_of
from api.edge.auth import Caller, Reader
from api.pages.document import document
from api.pages.phone import DAY, GRAVE, MOST_ROWS, REFRESH_S, STYLE, PhoneFacts, phone_sections, to_do
from api.routes.cluster import get_cluster
from api.routes.hints import HintQuery, get_hints
from api.routes.incidents import IncidentQuery, get_incidents
from api.routes.verdicts import VerdictQuery, get_verdicts
from api.server.state import Server, State
from store.records.event import Severity
from wire.cluster import ClusterJson
from wire.events import IncidentJson
from wire.hints import HintJson
from wire.message import Page
from wire.verdicts import VerdictJson

router = APIRouter(tags=["cluster"])
_VERDICTS, _INCIDENTS, _HINTS = 100, 200, 1000
_SKEW = timedelta(minutes=1)  # what is dated later than this is ahead of the clock


@router.get("/m", operation_id="get_phone_page", summary="The cluster on a phone", response_class=HTMLResponse)
def get_phone_page(who: Reader, server: Server, reload: Literal["yes", "no"] = "yes") -> Response:
    """What is wrong in a sentence, what to do now, how old that is. It loads again by itself: not with `reload=no`."""
    cluster = content_of(ClusterJson, get_cluster(who, server))
    until = cluster.now + _SKEW
    found = get_verdicts(who, server, VerdictQuery(state="open", limit=_VERDICTS))
    verdicts = content_of(Page[VerdictJson], found).items
    hints = content_of(Page[HintJson], get_hints(who, server, HintQuery(state="open", limit=_HINTS))).items
    pages = [_newest(who, server, severity, until) for severity in GRAVE]
    ahead = [_ahead(who, server, severity, until) for severity in GRAVE]
    incidents = [one for page in pages + ahead for one in page.items]
    places = to_do(incidents, cluster.now)
    with server.engine.connect() as connection:
        jobs = jobs_hit(connection, [place[0] for place in places[:MOST_ROWS]])
    runs = {ident: hit[0].run for ident, hit in jobs.items() if hit[0].run}
    # Older ones than these showed within the day as well, where the page is full of such.
    is_cut = any(page.next_cursor and cluster.now - page.items[0].start < DAY for page in pages)
    facts = PhoneFacts(cluster, verdicts, incidents, hints, runs, is_cut)
    again = reload == "yes"
    sections = phone_sections(facts, again)
    return document(f"Foreshock: {len(places):,} to do", sections, STYLE, REFRESH_S if again else None)


def _newest(who: Caller, server: State, severity: Severity, until: datetime) -> Page[IncidentJson]:
    query = IncidentQuery(severity=severity, until=until, limit=_INCIDENTS)
    return content_of(Page[IncidentJson], get_incidents(who, server, query))


def _ahead(who: Caller, server: State, severity: Severity, since: datetime) -> Page[IncidentJson]:
    """Those of a host whose clock is ahead; apart, so that it does not take the place of all others."""
    query = IncidentQuery(severity=severity, since=since, limit=_INCIDENTS)
    found = content_of(Page[IncidentJson], get_incidents(who, server, query))
    return Page(items=tuple(one for one in found.items if one.start >= since), next_cursor=None)

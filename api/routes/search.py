"""`GET /search`: what bears a name: a node, a device's serial number or GUID, a run, a job, an incident, a verdict."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.reply import listing
from api.answers.search import search
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from wire.message import Page
from wire.nodes import SearchResultJson

router = APIRouter(prefix=PREFIX, tags=["nodes"])


class SearchQuery(BaseModel):
    """What is looked for."""

    q: str = Field(min_length=1, max_length=255, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")
    limit: int = Field(default=20, ge=1, le=50)


@router.get(
    "/search", operation_id="search", summary="Find what bears a name", responses=answer(Page[SearchResultJson])
)
def get_search(_who: Reader, server: Server, query: Annotated[SearchQuery, Query()]) -> Response:
    """Whole ids, serial numbers, GUIDs and job numbers first, then nodes, runs and causes with it in their name."""
    with server.engine.connect() as connection:
        return listing(search(connection, query.q.strip(), query.limit))

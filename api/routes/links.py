"""`GET /links`: which links will flap or die, as the last scoring of them said."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.models.scores import link_score_page
from wire.message import Page
from wire.nodes import LinkScoreJson

router = APIRouter(prefix=PREFIX, tags=["scores"])


class LinkQuery(BaseModel):
    """Which links: the likeliest to be lost first."""

    horizon_h: int = Field(default=24, ge=1, le=8760)
    limit: int = Field(default=100, ge=1, le=1000)


@router.get("/links", operation_id="get_links", summary="Scores of links", responses=answer(Page[LinkScoreJson]))
def get_links(_who: Reader, server: Server, query: Annotated[LinkQuery, Query()]) -> Response:
    """The links of the last scoring, the likeliest to be lost first; none where none was made yet."""
    with server.engine.connect() as connection:
        return listing(link_score_page(connection, query.horizon_h, query.limit))

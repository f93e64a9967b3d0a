"""`GET /links`: which links will flap or die, as the last scoring of them said."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from store.models.scores import link_score_page
from wire.message import Page
from wire.nodes import LinkScoreJson

router = APIRouter(prefix=PREFIX, tags=["scores"])


class LinkQuery(BaseModel):
    """Which links: the likeliest to be lost first."""

    horizon_h: int = Field(default=24, ge=1, le=8760)
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/links", operation_id="get_links", summary="Scores of links", responses=answer(Page[LinkScoreJson]))
def get_links(_who: Reader, server: Server, query: Annotated[LinkQuery, Query()]) -> Response:
    """The links of the last scoring, the likeliest to be lost first; none where none was made yet.

    A scoring takes the place of the one before: pages that were begun then go on after the same score in the new one.
    """
    after = None if query.cursor is None else _after(query.cursor)
    with server.engine.connect() as connection:
        rows = link_score_page(connection, query.horizon_h, query.limit + 1, after)
    kept = rows[: query.limit]
    if len(rows) == len(kept):
        return listing(kept)
    last = kept[-1]
    return listing(kept, PageCursor(last["time"], f"{last['score']!r} {last['link']}").encode())


def _after(cursor: str) -> tuple[float, str]:
    """The score and the link at which a page ended.

    Raises:
        Problem: 422, it is another list's.
    """
    score, _, link = decode(cursor).id.partition(" ")
    try:
        return float(score), link
    except ValueError:
        raise Problem(422, "the cursor is not one of this list's: start again without one") from None

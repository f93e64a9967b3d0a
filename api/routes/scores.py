"""`GET /scores`: what the model said of every node, and when."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.auth import Reader
from api.paging import MAX_LIMIT, Cursor, CursorText, Moment, Name, decode
from api.reply import listing
from api.state import Server
from api.wire import Page, ScoreOut
from store.read_pages import score_page
from store.read_states import newest_scoring

router = APIRouter(tags=["scores"])


class ScoreQuery(BaseModel):
    """Which scores: those of the newest scoring no later than `at` (default: now)."""

    at: Moment | None = None
    horizon_h: int = Field(default=24, ge=1, le=8760)
    node: Name | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/scores", operation_id="get_scores", summary="List scores", response_model=Page[ScoreOut])
def get_scores(_who: Reader, server: Server, asked: Annotated[ScoreQuery, Query()]) -> Response:
    """The scores of one moment, by node. The pages of one list are of one moment, even when a new scoring comes."""
    cursor = decode(asked.cursor) if asked.cursor else None
    with server.engine.connect() as connection:
        moment = cursor.time if cursor else newest_scoring(connection, asked.horizon_h, asked.at or server.clock())
        if moment is None:
            return listing([])
        after = cursor.id if cursor else ""
        rows = score_page(connection, asked.horizon_h, moment, (asked.node, after), asked.limit + 1)
    kept = rows[: asked.limit]
    return listing(kept, Cursor(moment, kept[-1]["node"]).encode() if len(rows) > asked.limit else None)

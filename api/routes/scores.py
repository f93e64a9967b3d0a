"""`GET /scores`: what the model said of every node, and when."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import present
from api.answers.paging import MAX_LIMIT, CursorText, Moment, Name, PageCursor, decode
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.models.scores import score_page
from store.models.scorings import newest_scoring_of
from store.nodes.fleet import withheld_scores
from store.nodes.node_states import newest_scoring
from wire.message import Page
from wire.nodes import ScoreJson

router = APIRouter(prefix=PREFIX, tags=["scores"])


class ScoreQuery(BaseModel):
    """Which scores: those of the newest scoring no later than `at` (default: now).

    `model`: what this one said when it was last judged, a challenger's too, with no reasons; the horizon is its own.
    """

    at: Moment | None = None
    model: Name | None = None
    horizon_h: int = Field(default=24, ge=1, le=8760)
    node: Name | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/scores", operation_id="get_scores", summary="List scores", responses=answer(Page[ScoreJson]))
def get_scores(_who: Reader, server: Server, query: Annotated[ScoreQuery, Query()]) -> Response:
    """The scores of one moment, by node. The pages of one list are of one moment, even when a new scoring comes."""
    cursor = decode(query.cursor) if query.cursor else None
    if query.model is not None:
        return _said_by(query.model, server, query, cursor)
    with server.engine.connect() as connection:
        moment = cursor.time if cursor else newest_scoring(connection, query.horizon_h, query.at or server.clock())
        if moment is None:
            return listing([])
        after = cursor.id if cursor else ""
        rows = score_page(connection, query.horizon_h, moment, (query.node, after), query.limit + 1)
        kept = rows[: query.limit]
        withheld: Mapping[str, str] = {}
        if query.at is None:  # as of now: what was said of a moment gone by stays as it was said
            fleet = present(connection, server.settings, server.clock())
            withheld = withheld_scores(connection, fleet, [row["node"] for row in kept])
    for row in kept:
        row["withheld"] = withheld.get(row["node"])
        if row["withheld"] is not None:
            row.update(score=None, reasons=[])
    return listing(kept, PageCursor(moment, kept[-1]["node"]).encode() if len(rows) > query.limit else None)


def _said_by(model: str, server: Server, query: ScoreQuery, cursor: PageCursor | None) -> Response:
    """One page of a model's own newest scoring, of those that are kept to judge it."""
    with server.engine.connect() as connection:
        said = newest_scoring_of(connection, model, cursor.time if cursor else query.at or server.clock())
    if said is None:
        return listing([])
    after = cursor.id if cursor else ""
    nodes = [node for node in sorted(said.scores) if node > after and query.node in (None, node)]
    rows: list[dict[str, Any]] = [
        {
            "node": node,
            "time": said.time,
            "horizon_h": said.horizon_h,
            "score": said.scores[node],
            "withheld": None,
            "reasons": [],
            "model": model,
        }
        for node in nodes[: query.limit]
    ]
    return listing(rows, PageCursor(said.time, nodes[query.limit - 1]).encode() if len(nodes) > query.limit else None)

"""`GET /rules`: how the site reads faults, now and before."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode_seq
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.hints.policy_history import rules_page
from wire.events import RulesJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["rules"])


class RulesQuery(BaseModel):
    """Which versions."""

    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/rules", operation_id="get_rules", summary="List the rules", responses=answer(Page[RulesJson]))
def get_rules(_who: Reader, server: Server, query: Annotated[RulesQuery, Query()]) -> Response:
    """Every version of the site's rules that came into force, the newest first: that one holds."""
    with server.engine.connect() as connection:
        rows = rules_page(connection, query.limit + 1, decode_seq(query.cursor))
    kept = rows[: query.limit]
    return listing(kept, PageCursor(NO_TIME, str(kept[-1]["seq"])).encode() if len(rows) > query.limit else None)

"""`GET /audit`: who did what to which hint, when, and the outcome."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, Name, PageCursor, decode_seq
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.hints.hint_log import audit_page
from wire.events import AuditJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["hints"])


class AuditQuery(BaseModel):
    """Which entries; `hint` is a hint's id."""

    hint: Name | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/audit", operation_id="get_audit", summary="List the audit", responses=answer(Page[AuditJson]))
def get_audit(_who: Reader, server: Server, query: Annotated[AuditQuery, Query()]) -> Response:
    """Every change of every hint, the newest first."""
    before = decode_seq(query.cursor)
    with server.engine.connect() as connection:
        rows = audit_page(connection, query.limit + 1, before, query.hint)
    kept = rows[: query.limit]
    return listing(kept, PageCursor(NO_TIME, str(kept[-1]["seq"])).encode() if len(rows) > query.limit else None)

"""`GET /sidecars`: how the sidecar of each node fares."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.nodes.sidecars import sidecar_page
from store.records.node import SidecarState
from wire.message import Page
from wire.sidecars import SidecarJson

router = APIRouter(prefix=PREFIX, tags=["sidecars"])


class SidecarQuery(BaseModel):
    """Which sidecars."""

    state: SidecarState | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/sidecars", operation_id="get_sidecars", summary="List sidecars", responses=answer(Page[SidecarJson]))
def get_sidecars(_who: Reader, server: Server, query: Annotated[SidecarQuery, Query()]) -> Response:
    """Each sidecar's last heartbeat, by node.

    `silent`: none for three of its intervals, by this server's clock. `troubled`: a source is down or blocked, or
    something was lost or refused since it started.
    """
    after = decode(query.cursor).id if query.cursor else ""
    with server.engine.connect() as connection:
        rows = sidecar_page(connection, server.wall(), query.state, after, query.limit + 1)
    kept = rows[: query.limit]
    following = PageCursor(NO_TIME, kept[-1]["node"]).encode() if len(rows) > query.limit else None
    return listing([_item(row) for row in kept], following)


def _item(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: row[name]
        for name in ("node", "received", "time", "version", "started", "unbroken_since", "state", "report")
    }

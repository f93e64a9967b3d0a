"""`GET /lemons`: the nodes that should go to repair, with the evidence."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.loops.repair_list import repair_list_answer
from api.server.state import Server
from wire.repair import RepairListJson

router = APIRouter(prefix=PREFIX, tags=["nodes"])


@router.get(
    "/lemons",
    operation_id="get_lemons",
    summary="Nodes for repair",
    responses=answer(RepairListJson) | {304: {"description": "It is still what the `ETag` of `If-None-Match` names."}},
)
def get_lemons(_who: Reader, server: Server, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """The nodes that fail far more often than the fleet, the worst first, at most 500; made anew every minute or so."""
    body, tag = server.lemons.get(lambda: repair_list_answer(server))
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)

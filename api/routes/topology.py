"""`GET /topology`: where the nodes stand, and how the fabric is cabled."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.answers.reply import dump
from api.edge.auth import Reader
from api.edge.openapi import answer
from api.server.state import Server, State
from store.nodes.inventory import read_links, read_node_places
from wire.nodes import TopologyJson

router = APIRouter(tags=["cluster"])


@router.get(
    "/topology",
    operation_id="get_topology",
    summary="Nodes and cables",
    responses=answer(TopologyJson) | {304: {"description": "It is still what the `ETag` of `If-None-Match` names."}},
)
def get_topology(_who: Reader, server: Server, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Every node with its rack and leaf, and every cable known; at most half a minute old."""
    body, tag = server.topology.get(lambda: _topology_answer(server))
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _topology_answer(server: State) -> bytes:
    with server.engine.connect() as connection:
        return dump({"nodes": read_node_places(connection), "links": read_links(connection)})

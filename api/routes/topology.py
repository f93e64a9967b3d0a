"""`GET /topology`: where the nodes stand, and how the fabric is cabled."""

from fastapi import APIRouter, Response

from api.auth import Reader
from api.reply import reply
from api.state import Server
from api.wire import TopologyOut
from store.read import read_nodes
from store.read_overview import read_links

router = APIRouter(tags=["cluster"])


@router.get("/topology", operation_id="get_topology", summary="Nodes and cables", response_model=TopologyOut)
def get_topology(_who: Reader, server: Server) -> Response:
    """Every node with its rack and leaf, and every cable known."""
    with server.engine.connect() as connection:
        nodes = [{"node": node.node, "rack": node.rack, "leaf": node.leaf} for node in read_nodes(connection)]
        return reply({"nodes": nodes, "links": read_links(connection)})

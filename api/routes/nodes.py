"""`GET /nodes` and `GET /nodes/{node}`: how each node is, and how likely it fails."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME, node_objects, with_meaning
from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode
from api.answers.remedies import with_remedies
from api.answers.reply import listing, reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from predictor.devices.node_devices import node_devices
from store.events.append import MAX_AHEAD
from store.events.event_pages import EventWindow, incident_page
from store.hints.holds import with_holds
from store.nodes.fleet import NodePage
from store.nodes.inventory import read_outages
from store.nodes.node_history import node_hints, node_scores, node_telemetry
from store.records.node import NodeState
from store.verdicts.gpu_index import with_indices
from wire.message import Page
from wire.nodes import NodeDetailJson, NodeJson

router = APIRouter(prefix=PREFIX, tags=["nodes"])

_PAST = timedelta(days=30)


class NodeQuery(BaseModel):
    """Which nodes, in which order."""

    sort: Literal["score", "node"] = "score"
    state: NodeState | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/nodes", operation_id="get_nodes", summary="List nodes", responses=answer(Page[NodeJson]))
def get_nodes(_who: Reader, server: Server, query: Annotated[NodeQuery, Query()]) -> Response:
    """Nodes, the likeliest to fail first (`sort=node`: by name)."""
    page = NodePage(
        by_score=query.sort == "score",
        state=query.state,
        after=decode(query.cursor).id if query.cursor else None,
        limit=query.limit + 1,
    )
    with server.engine.connect() as connection:
        found = node_objects(connection, server.settings, server.clock(), page)
    kept = found[: query.limit]
    return listing(kept, PageCursor(NO_TIME, kept[-1]["node"]).encode() if len(found) > query.limit else None)


@router.get(
    "/nodes/{node}", operation_id="get_node", summary="One node with its past", responses=answer(NodeDetailJson)
)
def get_node(_who: Reader, server: Server, node: Annotated[str, Path(max_length=255)]) -> Response:
    """A node, its devices that may not be healthy, and its last 30 days, each list of those oldest first."""
    now = server.clock()
    since = now - _PAST
    with server.engine.connect() as connection:
        found = node_objects(connection, server.settings, now, NodePage(node=node)) if "\x00" not in node else []
        if not found:
            raise Problem(404, f"no node {node!r} has been heard of")
        outages = read_outages(connection, until=now, node=node)
        # Those that a host whose clock runs ahead dates later than now are not hidden.
        window = EventWindow(since, max(now, datetime.now(UTC)) + MAX_AHEAD, node)
        rows = with_indices(connection, incident_page(connection, window, None, MAX_LIMIT, newest=True))
        incidents = with_remedies(connection, rows, now)
        past = {
            # As its scores: what the filter says of a part is of one that works.
            "devices": [
                asdict(device)
                for device in (node_devices(connection, node, now) if found[0].get("withheld") is None else ())
            ],
            "incidents": [with_meaning(one | {"nodes": one["nodes"] or []}) for one in incidents],
            "outages": [outage for outage in outages if outage.end is None or outage.end >= since],
            "hints": with_holds(connection, node_hints(connection, node, since)),
            "telemetry": node_telemetry(connection, node, since),
            "scores": node_scores(connection, node, since),
        }
        return reply(found[0] | past)

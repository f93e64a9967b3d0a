"""`GET /nodes/{node}/telemetry`: a node's roll-ups, hour by hour, with each device."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.paging import CursorText, Moment, Name, PageCursor, decode
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from store.telemetry.hours import TelemetryWindow, node_is_known, telemetry_page
from wire.message import Page
from wire.nodes import NodeHourJson

router = APIRouter(prefix=PREFIX, tags=["telemetry"])

# An hour of a node with eight GPUs is some 15 KB.
_MAX_HOURS = 200


class NodeTelemetryQuery(BaseModel):
    """Which hours, and of which device and measure."""

    since: Moment | None = None
    until: Moment | None = None
    device: Name | None = Field(default=None, examples=["gpu:3"])
    measure: Name | None = Field(default=None, examples=["gpu_temp_c"])
    limit: int = Field(default=48, ge=1, le=_MAX_HOURS)
    cursor: CursorText = None


@router.get(
    "/nodes/{node}/telemetry",
    operation_id="get_node_telemetry",
    summary="A node's telemetry, device by device",
    responses=answer(Page[NodeHourJson]),
)
def get_node_telemetry(
    _who: Reader,
    server: Server,
    node: Annotated[str, Path(max_length=255)],
    query: Annotated[NodeTelemetryQuery, Query()],
) -> Response:
    """Hours in order of time, with each GPU, NIC, sensor and the node (`node`) in `devices`, as far as it was told."""
    after = None if query.cursor is None else decode(query.cursor).time
    window = TelemetryWindow(query.since, query.until, after, query.device, query.measure)
    with server.engine.connect() as connection:
        if "\x00" in node or not node_is_known(connection, node):
            raise Problem(404, f"no node {node!r} has been heard of")
        rows = telemetry_page(connection, node, window, query.limit + 1)
    kept = rows[: query.limit]
    more = len(rows) > query.limit
    return listing(kept, PageCursor(kept[-1]["time"], "").encode() if more else None)

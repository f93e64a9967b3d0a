"""`GET /nodes/{node}/rma`: what `foreshock rma` packs for a vendor's ticket, as a link in a ticket leads to it."""

from datetime import timedelta
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.edge.auth import Reader
from api.edge.openapi import PREFIX
from api.edge.problem import Problem
from api.evidence.pack import evidence_pack
from api.server.state import Server
from store.database.audit_chain import audit_head
from store.events.node_evidence import node_evidence
from store.records.event import format_time

router = APIRouter(prefix=PREFIX, tags=["nodes"])
_ZIP = "application/zip"
# Of each of six kinds, the newest: about 10 MB of an answer in the making. `foreshock rma` packs up to 100,000.
_MOST_ROWS = 2_000


class PackQuery(BaseModel):
    """How far back, and of which part alone."""

    days: float = Field(default=90.0, gt=0.0, le=36_500.0)
    device: str | None = Field(default=None, max_length=255, pattern=r"^[^\x00]*$", description="gpu:3, a PCI address.")


@router.get(
    "/nodes/{node}/rma",
    operation_id="get_rma",
    summary="A node's evidence for its vendor",
    response_class=Response,
    responses={
        200: {"content": {_ZIP: {"schema": {"type": "string", "format": "binary"}}}},
        404: {"description": "No such node."},
    },
)
def get_rma(
    _who: Reader, server: Server, node: Annotated[str, Path(max_length=255)], query: Annotated[PackQuery, Query()]
) -> Response:
    """A ZIP with the records of hardware, a timeline and a manifest; without a signature and without an audit entry.

    Of each kind the newest 2,000 at most: `older_left_out` in the manifest names the kinds that had more.
    """
    made = server.wall()
    until = server.clock()
    since = until - timedelta(days=query.days)
    with server.engine.connect() as connection:
        found = None if "\x00" in node else node_evidence(connection, node, since, until, query.device, _MOST_ROWS)
        head = audit_head(connection)
    if found is None:
        raise Problem(404, f"no node {node!r} has been heard of")
    told = {"node": node, "device": query.device, "since": format_time(since), "until": format_time(until)}
    pack = evidence_pack(found, told, made, head, None)
    name = quote(f"{node}-rma.zip", safe="")
    return Response(pack.data, media_type=_ZIP, headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"})

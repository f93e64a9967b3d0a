"""`GET /lemons`: the nodes that should go to repair, with the evidence."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel

from api.edge.auth import Reader
from api.loops.repair_list import repair_list_answer
from api.server.state import Server
from api.wire import Page

router = APIRouter(tags=["nodes"])


class EvidenceOut(BaseModel):
    """One signal in a sentence, with the ids behind it."""

    signal: str
    text: str
    events: list[str]
    incidents: list[str]
    jobs: list[str]


class LemonOut(BaseModel):
    """A node for repair: `probability` is that it fails at `times_fleet` of the list's head or more."""

    node: str
    rack: str | None
    leaf: str | None
    gpu_model: str | None
    driver: str | None
    probability: float
    times_fleet: float
    signals: dict[str, int | None]
    part: dict[str, Any] | None
    codes: dict[str, int]
    first_seen: str
    last_seen: str
    evidence: list[EvidenceOut]
    repairs: list[dict[str, Any]]
    next_step: str


class RepairListOut(Page[LemonOut]):
    """The list, the worst first, and what it was compared with."""

    at: str
    window_days: int
    memory_days: int
    nodes: int
    times_fleet: float
    false_share: float
    found: int
    fleet: dict[str, dict[str, Any]]
    unknown: list[str]


@router.get(
    "/lemons",
    operation_id="get_lemons",
    summary="Nodes for repair",
    response_model=RepairListOut,
    responses={304: {"description": "It is still what the `ETag` of `If-None-Match` names."}},
)
def get_lemons(_who: Reader, server: Server, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """The nodes that fail far more often than the fleet, the worst first, at most 500; made anew every minute or so."""
    body, tag = server.lemons.get(lambda: repair_list_answer(server))
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)

"""`GET /breaker`, `POST /breaker/{seq}/reset`, `GET` and `POST /stop`: what holds hints back, and a person's word."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode_seq
from api.answers.reply import listing, reply
from api.edge.auth import Reader, Resetter, Stopper
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.operator_actions import reset_breaker, set_switch
from schedulers.policy.kill_switch import STOPS, stopped
from store.database.connections import writing
from store.hints.stops import trips_page
from wire.message import Page
from wire.policy import ResetJson, StopJson, StopRequestJson, TripJson

router = APIRouter(prefix=PREFIX, tags=["hints"])
TripNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]


class TripQuery(BaseModel):
    """Which trips; `in_force` are those that nobody has reset."""

    in_force: bool = False
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


Reset = Annotated[ResetJson, Depends(json_of(ResetJson))]
Stop = Annotated[StopRequestJson, Depends(json_of(StopRequestJson))]


@router.get(
    "/breaker", operation_id="get_breaker", summary="List the breaker's trips", responses=answer(Page[TripJson])
)
def get_breaker(_who: Reader, server: Server, query: Annotated[TripQuery, Query()]) -> Response:
    """The trips, the newest first."""
    before = decode_seq(query.cursor)
    with server.engine.connect() as connection:
        trips = trips_page(connection, query.limit + 1, before, query.in_force)
    kept = [asdict(trip) for trip in trips[: query.limit]]
    return listing(kept, PageCursor(NO_TIME, str(kept[-1]["seq"])).encode() if len(trips) > query.limit else None)


@router.post(
    "/breaker/{seq}/reset",
    operation_id="reset_breaker",
    summary="Reset the breaker",
    responses=answer(TripJson)
    | {404: {"description": "No such trip."}, 409: {"description": "It was reset with the other word."}},
    openapi_extra=described(ResetJson, {"backlog": "review"}),
)
def post_reset(who: Resetter, server: Server, seq: TripNumber, body: Reset) -> Response:
    """End a trip. Saying it again changes nothing."""
    try:
        with writing(server.engine).begin() as connection:
            return reply(asdict(reset_breaker(connection, seq, body.backlog, server.clock(), who.name)))
    except RequestRefusedError as error:
        raise Problem(409 if error.known else 404, str(error)) from error


@router.get("/stop", operation_id="get_stop", summary="Tell what is stopped", responses=answer(StopJson))
def get_stop(_who: Reader, server: Server) -> Response:
    """What is stopped, and by whom: the setting, a stop file of this machine, or a person."""
    return _stop(server)


@router.post(
    "/stop",
    operation_id="post_stop",
    summary="Stop hints",
    responses=answer(StopJson),
    openapi_extra=described(StopRequestJson, {"stop": "holds", "reason": "fabric work"}),
)
def post_stop(who: Stopper, server: Server, body: Stop) -> Response:
    """Stop, or let go on; answers what is stopped then, which a file or the setting may be, too."""
    with writing(server.engine).begin() as connection:
        set_switch(connection, body.stop, body.reason.strip(), server.clock(), who.name)
    return _stop(server)


def _stop(server: Server) -> Response:
    with server.engine.connect() as connection:
        sources = stopped(connection, server.settings.policy)
    strongest = max((one.stop for one in sources), key=STOPS.index, default="none")
    return reply({"stop": strongest, "sources": [asdict(one) for one in sources]})

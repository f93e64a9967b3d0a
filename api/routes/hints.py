"""`GET /hints`, `POST /hints/{id}/approve|withdraw`: hints to schedulers, and operator actions on them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import (
    MAX_LIMIT,
    CursorText,
    Name,
    PageCursor,
    decode,
    decode_seq,
    page_of,
    time_of,
)
from api.answers.reply import listing, reply
from api.edge.auth import Approver, Reader
from api.edge.openapi import answer
from api.edge.problem import Problem
from api.server.state import Server, State
from schedulers.lifecycle.operator_actions import RequestRefusedError, approve, withdraw
from store.database.connections import writing
from store.hints.hint_log import changed_hints, hint_page, seq_before
from store.hints.holds import with_holds
from store.records.hint import OPEN_STATES, HintState
from wire.hints import HintJson
from wire.message import Page

router = APIRouter(tags=["hints"])
HintId = Annotated[str, Path(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


class HintQuery(BaseModel):
    """Which hints; `state=open` means all that have not ended."""

    state: HintState | Literal["open"] | None = None
    node: Name | None = None
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None
    since: Annotated[
        str | None, Query(max_length=500, description="A time, or `next_cursor` of the answer before.")
    ] = None


@router.get("/hints", operation_id="get_hints", summary="List hints", responses=answer(Page[HintJson]))
def get_hints(_who: Reader, server: Server, query: Annotated[HintQuery, Query()]) -> Response:
    """The newest hints, newest last; the cursor leads to older ones.

    With `since`: those that changed since then, ended ones too, each as it is now, in the order of the changes;
    `next_cursor` is always there, and is the `since` of the next question. A change may come twice, none is lost.
    """
    if query.since is not None:
        return _changes(server, query, query.since)
    cursor = decode(query.cursor) if query.cursor else None
    mark = (cursor.time, cursor.id) if cursor else None
    states = None if query.state is None else OPEN_STATES if query.state == "open" else (query.state,)
    with server.engine.connect() as connection:
        rows = hint_page(connection, states, query.node, mark, query.limit + 1)
        items, following = page_of(rows, query.limit, newest=True, time="created")
        items = with_holds(connection, items)
    return listing(items, following)


def _changes(server: State, query: HintQuery, since: str) -> Response:
    if query.state is not None or query.node is not None or query.cursor is not None:
        raise Problem(422, "since tells every change, ends and all: leave state, node and cursor out")
    with server.engine.connect() as connection:
        moment = time_of(since)
        after = seq_before(connection, moment) if moment is not None else decode_seq(since)
        page = changed_hints(connection, after or 0, query.limit)
        items = with_holds(connection, [hint.to_row() for hint in page.hints])
    return listing(items, PageCursor(NO_TIME, str(page.seq)).encode())


@router.post(
    "/hints/{hint}/approve",
    operation_id="approve_hint",
    summary="Approve a hint",
    responses=answer(HintJson)
    | {404: {"description": "No such hint."}, 409: {"description": "It cannot be approved any more."}},
)
def approve_hint(who: Approver, server: Server, hint: HintId) -> Response:
    """Let a proposed hint be sent. Approving it again changes nothing."""
    try:
        with writing(server.engine).begin() as connection:
            approved = approve(connection, hint, server.clock(), who.name, server.settings.mode)
            return reply(with_holds(connection, [approved.to_row()])[0])
    except RequestRefusedError as error:
        raise _problem(error) from error


@router.post(
    "/hints/{hint}/withdraw",
    operation_id="withdraw_hint",
    summary="Withdraw a hint",
    responses=answer(HintJson) | {404: {"description": "No such hint."}, 409: {"description": "It has ended already."}},
)
def withdraw_hint(who: Approver, server: Server, hint: HintId) -> Response:
    """End a hint; a scheduler that took it is ordered to release the node. Withdrawing it again changes nothing."""
    try:
        with writing(server.engine).begin() as connection:
            withdrawn = withdraw(connection, hint, server.clock(), who.name)
            return reply(with_holds(connection, [withdrawn.to_row()])[0])
    except RequestRefusedError as error:
        raise _problem(error) from error


def _problem(error: RequestRefusedError) -> Problem:
    return Problem(409 if error.known else 404, str(error))
